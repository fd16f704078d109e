"""Tasks as HTTP requests: a worker that POSTs each task to a web server, whose answer ends it.

==============================  =======================================================================
answer                          the task
==============================  =======================================================================
2xx but 202                     completes; with ``result``, ``children``, ``children_block``, ``status``,
                                ``delay_workgroup`` and ``delay_children`` of the answer's JSON, if it is an
                                object of these; else the answer is the result if it is JSON
202                             is left to be returned by the holder of its token
429, 503 with ``Retry-After``   is tried again after that time, a day at most
4xx but 408 and 429             aborts
all else, time-outs             is tried again after its back-off
==============================  =======================================================================
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from . import tracing
from .app import App
from .bodies import dumps, read_body, read_json
from .connections import Connect
from .durations import Duration, seconds
from .errors import Leave, Reject, Retry
from .task import Complete, Task

_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
_ANSWER: dict[str, Any] = {
    "result": object,
    "children": list,
    "children_block": bool,
    "status": str,
    "delay_workgroup": str,
    "delay_children": str,
}
# Of an answer that has failed so much goes into the status.
_EXCERPT = 500
_LARGEST = 10 * 2**20
_LONGEST_DELAY = 86400.0


def dispatcher(
    connect: str | Connect,
    url: str,
    actions: Iterable[str],
    *,
    lease: Duration = "1 minute",
    timeout: Duration = "1 minute",
    authorization: str | None = None,
    secret: str | None = None,
    with_token: bool = False,
    delay_workgroup: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
) -> App:
    """Return an app whose handlers POST the tasks of these actions to ``url`` + action.

    ``timeout`` is for a request, ``lease`` for what is left with 202. With a ``secret``, ``whsec_`` and base64, each
    request is signed as Standard Webhooks have it. With ``delay_workgroup`` a ``Retry-After`` holds back the
    workgroup of the task, too. ``transport`` is httpx's, for tests.
    """
    _check(url, actions := list(actions))
    app = App(connect, lease=lease)
    limit = seconds(timeout)
    key = None if secret is None else _key(secret)
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if authorization:
        headers["Authorization"] = authorization
    client: httpx.AsyncClient

    @app.on_start
    def begin() -> None:
        nonlocal client
        client = httpx.AsyncClient(timeout=limit, follow_redirects=False, transport=transport)

    @app.on_stop
    async def end() -> None:
        await client.aclose()

    async def post(task: Task) -> Complete:
        content = dumps(_request(task, with_token)).encode()
        sent = headers | _headers(task) | (_signature(task, content, key) if key else {})
        target = url + quote(task.action, safe="")
        try:
            # The client's own limit is for each part of an answer.
            async with asyncio.timeout(limit), client.stream("POST", target, content=content, headers=sent) as answer:
                text = await _read(answer)
        except TimeoutError:
            raise Retry(f"no answer within {limit:g} seconds") from None
        except httpx.HTTPError as error:
            raise Retry(f"{type(error).__name__}: {error}") from error
        return _outcome(answer, text, delay_workgroup)

    for action in actions:
        app.task(action, results=True)(post)
    return app


def _check(url: str, actions: Iterable[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f'"{url}" is no URL: write "https://workers.example/"')
    if parts.username is not None or parts.password is not None:
        raise ValueError("a URL with a user: the Authorization header comes from the environment")
    if parts.query or parts.fragment:
        raise ValueError("a URL with a query: the action is appended to it")
    if wrong := {".", ".."}.intersection(actions):
        raise ValueError(f'the action "{wrong.pop()}" cannot be a part of a URL')


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError as error:
        raise ValueError(f"the secret is not whsec_ and base64: {error}") from None
    if not key:
        raise ValueError("the secret is empty")
    return key


def _id(task: Task) -> str:
    # A header is ASCII: in other ids what is not stands as in a URL.
    return quote(task.id, safe=_VISIBLE)


def _headers(task: Task) -> dict[str, str]:
    headers = {"Idempotency-Key": _id(task), "taskq-try": str(task.num_tries)}
    if task.deadline is not None:
        headers["taskq-deadline"] = task.deadline.astimezone(UTC).isoformat()
    return headers | (tracing.inject(None) or {})


def _signature(task: Task, content: bytes, key: bytes) -> dict[str, str]:
    """Return the headers of Standard Webhooks."""
    name, moment = _id(task), str(int(time.time()))
    signed = hmac.new(key, f"{name}.{moment}.".encode() + content, hashlib.sha256).digest()
    signature = f"v1,{base64.b64encode(signed).decode()}"
    return {"webhook-id": name, "webhook-timestamp": moment, "webhook-signature": signature}


def _request(task: Task, with_token: bool) -> dict[str, Any]:
    request = {
        "task_id": task.id,
        "action": task.action,
        "body": read_body(task.text),
        "results": task.results,
        "checkpoint": task.checkpoint,
        "num_tries": task.num_tries,
    }
    return {**request, "token": task.token} if with_token else request


async def _read(answer: httpx.Response) -> bytes:
    """Return what was answered, and no more than there may be."""
    content = b""
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        return content  # it was not asked for, and a little of it may become very much
    async for chunk in answer.aiter_bytes():
        content += chunk
        if len(content) > _LARGEST:
            if not answer.is_success:
                break
            raise Reject(f"HTTP {answer.status_code}, and the answer is larger than 10 MB")
    return content


def _outcome(answer: httpx.Response, content: bytes, delays_workgroup: bool) -> Complete:
    code = answer.status_code
    if code == 202:
        raise Leave("accepted, to be returned later")
    if 200 <= code < 300:
        return _completed(content)
    text = f"HTTP {code} {_excerpt(answer, content)}".strip()
    if code in (429, 503) and (delay := _retry_after(answer)) is not None:
        after = f"{min(delay, _LONGEST_DELAY)} seconds"
        raise Retry(text, after=after, delay_workgroup=after if delays_workgroup else None)
    if 400 <= code < 500 and code not in (408, 429):
        raise Reject(text)
    raise Retry(text)


def _excerpt(answer: httpx.Response, content: bytes) -> str:
    # Not a page of HTML: one for developers may have anything in it.
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind not in ("text/plain", "application/json"):
        return ""
    return content[: 4 * _EXCERPT].decode(errors="replace")[:_EXCERPT]


def _completed(content: bytes) -> Complete:
    """Make the best of an answer: the work is done, and another try would do it again."""
    try:
        value = read_json(content)
        # What JSON of others can say and that of the queue cannot, a number beyond all floats for one.
        dumps(value)
    except (ValueError, RecursionError):
        return Complete()
    if not isinstance(value, dict) or not all(_fits(name, one) for name, one in value.items()):
        return Complete(value)
    return Complete(**{"children": [], **{name: one for name, one in value.items() if one is not None}})


def _fits(name: str, value: Any) -> bool:
    if name not in _ANSWER or not (value is None or isinstance(value, _ANSWER[name])):
        return False
    return name != "children" or value is None or all(isinstance(child, dict) for child in value)


def _retry_after(answer: httpx.Response) -> float | None:
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
