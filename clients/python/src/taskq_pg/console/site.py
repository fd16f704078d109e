"""The application: its addresses, and what becomes of a request."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any

import psycopg
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from . import acts, bulk, returning
from .database import Database
from .guard import Forms, Guard, Refused
from .render import STATIC, environment
from .screens import SCREENS, series
from .view import View, address, shortened

Named = Callable[[Request], Any]
Screen = Callable[[View], Response]
# What is told by the status of an answer; all else that the database refuses is 400.
_STATUS = {
    "42501": 403,
    "TQ003": 404,
    "TQ007": 404,
    "TQ005": 409,
    "TQ001": 409,
    "57014": 504,
    "40001": 503,
    "40P01": 503,
}


class Site:
    """A console of one queue."""

    def __init__(
        self,
        conninfo: str,
        role_of: Named | None,
        user_of: Named | None,
        hide_bodies: bool | Collection[str],
        title: str | None,
        secret: str | None,
    ) -> None:
        """Take what `console` takes."""
        self.database = Database(conninfo)
        self.role_of = role_of
        self.user_of = user_of
        self.hide_bodies = hide_bodies
        self.title = title or "taskq"
        self.forms = Forms(secret)
        self.templates = environment()

    def look(self, screen: Screen) -> Callable[[Request], Awaitable[Response]]:
        """Answer with a screen."""

        async def answer(request: Request) -> Response:
            return await self._answer(request, screen, [], writes=False)

        return answer

    def act(self, screen: Screen) -> Callable[[Request], Awaitable[Response]]:
        """Answer a form."""

        async def answer(request: Request) -> Response:
            try:
                form = await self.forms.read(request)
            except Refused as refused:
                return self._problem(request, refused.status, str(refused))
            return await self._answer(request, screen, form, writes=True)

        return answer

    async def _answer(self, request: Request, screen: Screen, form: list[tuple[str, str]], *, writes: bool) -> Response:
        role = await _named(self.role_of, request)
        if self.role_of is not None and role is None:
            return self._problem(request, 403, "You have no role in this queue.")
        user = await _named(self.user_of, request) or role
        try:
            return await run_in_threadpool(self._run, request, screen, form, writes, role, user)
        except Refused as refused:
            return self._problem(request, refused.status, str(refused))
        except TimeoutError as error:
            return self._problem(request, 503, str(error))
        except psycopg.Error as error:
            return self._refusal(request, error, self._back(form))

    def _run(
        self,
        request: Request,
        screen: Screen,
        form: list[tuple[str, str]],
        writes: bool,
        role: str | None,
        user: str | None,
    ) -> Response:
        lend = self.database.writing if writes else self.database.reading
        with lend(role) as session:
            return screen(View(self, request, session, user or session.role, form))

    def done(self, view: View, text: str, kind: str = "done") -> Response:
        """Go back to where the form was, and say what has become of it."""
        answer = RedirectResponse(self.back(view), 303)
        self.forms.say(view.request, answer, {"kind": kind, "text": shortened(text)})
        return answer

    def back(self, view: View) -> str:
        """Return where the form was."""
        return f"{view.request.scope.get('root_path', '')}/{self._back(view.form)}"

    def _back(self, form: list[tuple[str, str]]) -> str:
        back = next((value for name, value in form if name == "back"), "")
        # A screen of this console, and no other place.
        screen = back.partition("?")[0]
        return back if screen in SCREENS and "\r" not in back and "\n" not in back else ""

    def _refusal(self, request: Request, error: psycopg.Error, back: str) -> Response:
        state = error.sqlstate
        if state is None or (state[:2] in ("08", "57") and state != "57014"):
            text = "The database does not answer. This page tries again."
            return self._problem(request, 503, text, str(error).strip())
        diag = error.diag
        message = diag.message_primary or str(error)
        if state == "57014":
            message = "This look would take too long, and was given up. A narrower filter finds it."
        elif state in ("3F000", "42P01", "42883"):
            message = (
                "This database has no taskq, or an older one: CREATE EXTENSION taskq, or ALTER EXTENSION taskq UPDATE."
            )
        detail = " ".join(part for part in (diag.message_detail, diag.message_hint) if part)
        return self._problem(request, _STATUS.get(state, 400), message, detail, back)

    def _problem(self, request: Request, status: int, text: str, detail: str = "", back: str = "") -> Response:
        html = self.templates.get_template("problem.html").render(
            url=lambda screen="", **query: address(request, screen, query),
            back=f"{request.scope.get('root_path', '')}/{back}",
            status=status,
            text=text,
            detail=detail,
            title=self.title,
        )
        return HTMLResponse(html, status)


def console(
    conninfo: str = "",
    *,
    role_of: Named | None = None,
    user_of: Named | None = None,
    hide_bodies: bool | Collection[str] = False,
    token: str | None = None,
    title: str | None = None,
    secret: str | None = None,
) -> ASGIApp:
    """Return the console as an ASGI application.

    It connects with a conninfo of its own, and may what that role may. ``role_of(request)`` names a role of PostgreSQL
    that a request is done as, by SET LOCAL ROLE (the console's own role has to be a member of it); None: refused.
    ``user_of(request)`` names the person who acts. ``hide_bodies`` hides what tasks carry: of all, or of these actions.
    With ``token`` only a browser that has come with it in the address is let in. Processes of one console share a
    ``secret``, or forms of one are refused by another.
    """
    site = Site(conninfo, role_of, user_of, hide_bodies, title, secret)
    routes: list[Any] = [Route(f"/{path}", site.look(screen), methods=["GET"]) for path, screen in SCREENS.items()]
    routes += [
        Route("/series", site.look(series), methods=["GET"]),
        Route("/act", site.act(acts.act), methods=["POST"]),
        Route("/bulk", site.act(bulk.bulk), methods=["POST"]),
        Route("/tasks/{id:path}/return", returning.endpoint(site), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes, exception_handlers={404: _not_found}, lifespan=_closing(site))
    app.state.site = site
    return Guard(app, token)


def _closing(site: Site) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        yield
        site.database.connections.close()

    return live


async def _not_found(request: Request, error: Exception) -> Response:
    site: Site = request.app.state.site
    if request.url.path.endswith("/return"):
        return JSONResponse({"error": "not found"}, 404)
    return site._problem(request, 404, "There is no such page.")


async def _named(ask: Named | None, request: Request) -> str | None:
    if ask is None:
        return None
    name = ask(request)
    if inspect.isawaitable(name):
        name = await name
    return None if name is None else str(name)
