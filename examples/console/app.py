"""The console in an application with a login: each user has a role of PostgreSQL.

CONSOLE_USERS names them, as `ann:her password:queue_operator,ben:…:queue_monitor`. CONSOLE_CONNINFO is that of a role that is a
member of these roles, and has no rights besides.
"""

import os
import secrets
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.middleware.sessions import SessionMiddleware
from taskq_pg.console import console

USERS = {
    name: (password, role)
    for name, password, role in (line.split(":") for line in os.environ["CONSOLE_USERS"].split(",") if line)
}
LOGIN = """<!DOCTYPE html><html lang="en"><meta name="viewport" content="width=device-width"><title>Login</title>
<form method="post"><p><label>Name <input name="name" autofocus></label>
<p><label>Password <input name="password" type="password"></label><p><button>Log in</button></form></html>"""


def user_of(request: Request) -> str | None:
    """Who has logged in."""
    return request.scope["session"].get("user")


def role_of(request: Request) -> str | None:
    """The role of PostgreSQL that a request is done as; None: refused."""
    user = USERS.get(user_of(request) or "")
    return user[1] if user else None


app = FastAPI(openapi_url=None)


@app.middleware("http")
async def ask_for_a_login(request: Request, go_on) -> Response:
    """Lead to the login, but for what programs return."""
    returns = request.url.path.startswith("/taskq/tasks/") and request.url.path.endswith("/return")
    if request.url.path != "/login" and role_of(request) is None and not returns:
        return RedirectResponse("/login", 303)
    return await go_on(request)


# Added last: it comes first. The cookie is signed, and not sent with a form of another site.
app.add_middleware(
    SessionMiddleware,
    secret_key=os.environ.get("CONSOLE_SECRET") or secrets.token_urlsafe(32),
    same_site="lax",
    https_only=os.environ.get("CONSOLE_HTTPS", "no") == "yes",
)


@app.get("/login")
def ask() -> HTMLResponse:
    return HTMLResponse(LOGIN)


@app.post("/login")
async def log_in(request: Request) -> Response:
    form = parse_qs((await request.body()).decode())
    name, given = form.get("name", [""])[0], form.get("password", [""])[0]
    password, _ = USERS.get(name, ("", ""))
    # The same time for a name that is not there.
    if not secrets.compare_digest(password.encode(), given.encode()) or not password:
        return HTMLResponse(LOGIN, 401)
    request.scope["session"]["user"] = name
    return RedirectResponse("/taskq/", 303)


app.mount("/taskq", console(os.environ["CONSOLE_CONNINFO"], role_of=role_of, user_of=user_of, title="shop"))
