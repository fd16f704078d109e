"""``POST /tasks/{id}/return``: what a webhook that has answered 202 returns its task with."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .guard import Refused, read_body

if TYPE_CHECKING:
    from .site import Site

_LARGEST = 70 * 1024 * 1024
_KEYS: dict[str, LiteralString] = {
    "token": "%s::uuid",
    "status_code": "status_code => %s::text",
    "status": "status => %s::text",
    "result": "result => %s::text::jsonb",
    "retry_after": "retry_after => %s::text::interval",
    "children": "children => %s::text::jsonb",
    "children_block": "children_block => %s::boolean",
    "delay_children": "delay_children => %s::text::interval",
    "delay_workgroup": "delay_workgroup => %s::text::interval",
}
_JSON = ("result", "children")
_STATUS = {"42501": 403, "TQ005": 409}
# Whether there is such a task is told to those that have its token.
_LOST = "this token is not the last one granted for this task"


def endpoint(site: Site) -> Callable[[Request], Awaitable[Response]]:
    """Return the task under the token of the body. No cookie counts here: the token is what gives the right.

    It is done as the console's own role, which has to be a worker's.
    """

    async def answer(request: Request) -> Response:
        try:
            given = _read(await read_body(request, _LARGEST), request.headers.get("authorization"))
        except Refused as refused:
            return JSONResponse({"error": str(refused)}, refused.status)
        try:
            code = await run_in_threadpool(_return, site, request.path_params["id"], given)
        except psycopg.Error as error:
            if error.sqlstate in ("TQ001", "TQ003"):
                return JSONResponse({"error": _LOST, "sqlstate": "TQ001"}, 409)
            status = 503 if error.sqlstate is None else _STATUS.get(error.sqlstate, 400)
            text = "the database does not answer" if status == 503 else error.diag.message_primary
            return JSONResponse({"error": text, "sqlstate": error.sqlstate}, status)
        return JSONResponse({"status_code": code})

    return answer


def _read(body: bytes, authorization: str | None) -> dict[str, Any]:
    try:
        given = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refused(400, "the body is no JSON") from None
    if not isinstance(given, dict):
        raise Refused(400, "the body is no object")
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        given.setdefault("token", token.strip())
    if unknown := given.keys() - _KEYS.keys():
        raise Refused(400, f"unknown: {', '.join(sorted(unknown))[:200]}; there are {', '.join(_KEYS)}")
    if not isinstance(given.get("token"), str):
        raise Refused(401, "the token of the task is missing, in the body or as Authorization: Bearer")
    for name in ("status_code", "status", "retry_after", "delay_children", "delay_workgroup"):
        if not isinstance(given.get(name, ""), str):
            raise Refused(400, f"{name} is a text")
    if not isinstance(given.get("children_block", False), bool):
        raise Refused(400, "children_block is true or false")
    return given


def _return(site: Site, task_id: str, given: dict[str, Any]) -> str:
    named = ", ".join(_KEYS[name] for name in given if name != "token")
    values = [json.dumps(value) if name in _JSON else value for name, value in given.items() if name != "token"]
    query: Any = f"SELECT taskq.return_task(%s, %s::text::uuid{', ' if named else ''}{named})"
    with site.database.writing(None) as session:
        return str(session.value(query, task_id, given["token"], *values))
