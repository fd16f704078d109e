"""Tasks as HTTP requests: a worker that POSTs each task to a web server, whose answer ends it.

========================  =============================================================================
answer                    the task
========================  =============================================================================
200                       completes, with ``result``, ``children``, ``children_block``, ``status``,
                          ``delay_workgroup`` and ``delay_children`` of the answer's JSON
202                       is left to be returned by the holder of its token
429 with ``Retry-After``  is ``pending`` for that time, and its workgroup waits with it
4xx but 408 and 429       aborts
all else, time-outs       is ``pending``: its back-off decides
========================  =============================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import httpx
import psycopg

from .app import App
from .bodies import dumps, read_body, read_json
from .connections import Connect
from .durations import Duration, seconds
from .errors import Leave, Reject, Retry
from .task import Outcome, Task

_VISIBLE = "".join(map(chr, range(0x21, 0x7F)))
_ANSWER: dict[str, type] = {
    "result": object,
    "children": list,
    "children_block": bool,
    "status": str,
    "delay_workgroup": str,
    "delay_children": str,
}
# Of an answer that is no JSON, so much goes into the status.
_EXCERPT = 500


def dispatcher(
    connect: str | Connect,
    url: str,
    actions: Iterable[str],
    *,
    lease: Duration = "1 minute",
    authorization: str | None = None,
    with_token: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
) -> App:
    """Return an app whose handlers POST the tasks of these actions to ``url`` + action.

    A request may take as long as the lease. ``transport`` is httpx's, for tests.
    """
    app = App(connect, lease=lease)
    limit = seconds(lease)
    client = httpx.AsyncClient(timeout=limit, follow_redirects=False, transport=transport)
    headers = {"Content-Type": "application/json"}
    if authorization:
        headers["Authorization"] = authorization

    async def post(task: Task) -> Outcome:
        # A request that is sent again after a crash has the same key only if it is the same try.
        # A header is ASCII: in other ids what is not stands as in a URL.
        key = {"Idempotency-Key": f"{quote(task.id, safe=_VISIBLE)}/{task.num_tries}"}
        target = url + quote(task.action, safe="")
        try:
            # The client's own limit is for each part of an answer.
            async with asyncio.timeout(limit):
                answer = await client.post(target, content=dumps(_request(task, with_token)), headers=headers | key)
        except TimeoutError:
            raise Retry(f"no answer within {limit:g} seconds") from None
        except httpx.HTTPError as error:
            raise Retry(f"{type(error).__name__}: {error}") from error
        outcome = _outcome(answer)
        if outcome.delay_workgroup is not None and not await _is_delay(app, outcome.delay_workgroup):
            raise Retry(f"the answer is not as it should be: delay_workgroup is no duration: {outcome.delay_workgroup}")
        return outcome

    for action in actions:
        app.task(action, results=True)(post)
    return app


async def _is_delay(app: App, text: Duration) -> bool:
    # Of a return that is refused, the worker drops the delay: the task may have no workgroup.
    try:
        [[fits]] = await app.query_async("SELECT %s::text::interval BETWEEN '0' AND '1000 years'", [text])
    except psycopg.DataError:
        return False
    except psycopg.Error:
        return True  # unknown, and the other side has done its work
    return bool(fits)


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


def _outcome(answer: httpx.Response) -> Outcome:
    code = answer.status_code
    if code == 202:
        raise Leave("accepted, to be returned later")
    if code == 200:
        return _completed(answer)
    text = f"HTTP {code} {answer.text[:_EXCERPT]}".strip()
    if code == 429 and (delay := _retry_after(answer)) is not None:
        raise Retry(text, after=f"{delay} seconds", delay_workgroup=f"{delay} seconds")
    if 400 <= code < 500 and code not in (408, 429):
        raise Reject(text)
    raise Retry(text)


def _completed(answer: httpx.Response) -> Outcome:
    if not answer.content:
        return Outcome()
    try:
        keys = read_json(answer.content)
        outcome = _read(keys)
        # What no JSON can say, a number beyond all floats for one, is found here, and not when the task is returned.
        returns = outcome.returns()
        dumps(returns)
        # With such a result the task aborts: the next try would have no other.
        _storable({key: value for key, value in returns.items() if key != "result"})
    except (ValueError, TypeError, RecursionError) as error:
        raise Retry(f"the answer is not as it should be: {error}: {answer.text[:_EXCERPT]}") from error
    return outcome


def _read(keys: Any) -> Outcome:
    if not isinstance(keys, dict) or keys.keys() - _ANSWER.keys():
        raise TypeError(f"it is to be an object of {', '.join(sorted(_ANSWER))}")
    given = {key: value for key, value in keys.items() if value is not None}
    for key, value in given.items():
        if not isinstance(value, _ANSWER[key]):
            raise TypeError(f"{key} is no {_ANSWER[key].__name__}")
    children = given.setdefault("children", [])
    if not all(isinstance(child, dict) for child in children):
        raise TypeError("children is to be a list of objects")
    return Outcome(**given)


def _storable(value: Any) -> None:
    """Raise ``ValueError`` if a text in it is none for PostgreSQL."""
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a text has the character 0")
        value.encode()
    elif isinstance(value, dict):
        _storable([*value, *value.values()])
    elif isinstance(value, list):
        for one in value:
            _storable(one)


def _retry_after(answer: httpx.Response) -> float | None:
    text = answer.headers.get("Retry-After", "")
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
