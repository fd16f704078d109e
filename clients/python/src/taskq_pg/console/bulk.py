"""All that a filter finds: counted first, then done in batches, a request each.

What a step needs to know of the steps before stands in the form, so a process that ends loses nothing, and leaving the
page stops it. Tasks are gone through from the newest down, beginning with the newest of the moment in which they
were counted: each once.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import unquote

import psycopg
from starlette.responses import Response

from .acts import OF_TASKS, Act
from .guard import Refused
from .search import Filter, find
from .view import View

# How long a step takes, in seconds, and how many tasks a transaction changes.
_STEP = 0.5
_BATCH = 200
_COUNTED = 5_000
# So many of those that were left out are named.
_TOLD = 20


def bulk(view: View) -> Response:
    """Make a step of counting, or of doing."""
    what = view.sent("do") or ""
    chosen = OF_TASKS.get(what)
    if chosen is None:
        raise Refused(400, "There is no such button. Nothing was changed.")
    if chosen.needs not in view.session.may:
        raise Refused(403, f"Your role may not call taskq.{chosen.needs}. Nothing was changed.")
    # A list has ids that are selected: here the filter counts, whose own id stands under another name.
    pairs = [("id" if name == "prefix" else name, unquote(value)) for name, value in view.form if name != "id"]
    asked = view.filter(pairs)
    # Only those in a state in which the button means something are counted, and gone through.
    states = [state for state in chosen.states if state in (asked.all("state") or chosen.states)]
    if not states:
        raise Refused(400, f"{chosen.label} means nothing to tasks that are {' or '.join(asked.all('state') or [])}.")
    filter = Filter({**asked.given, "state": states})
    so_far: dict[str, Any] = {
        "top": view.sent("top"),
        "cursor": view.sent("cursor"),
        "counted": _number(view, "counted"),
        "done": _number(view, "done"),
        "changed": _number(view, "changed"),
        "left": json.loads(view.sent("left") or "[]"),
    }
    step = view.sent("step") or "count"
    stage = _count(view, filter, so_far) if step == "count" else _do(view, filter, chosen, so_far)
    return view.page(
        "bulk.html",
        filter=filter,
        act=chosen,
        what=what,
        stage=stage,
        back=view.site.back(view),
        form=view.form,
        **so_far,
    )


def _number(view: View, name: str) -> int:
    text = view.sent(name) or "0"
    return int(text) if text.isdecimal() else 0


def _count(view: View, filter: Filter, so_far: dict[str, Any]) -> str:
    ends = time.monotonic() + _STEP
    while True:
        found = find(view.session, filter, so_far["cursor"], _COUNTED, patience=0.1)
        so_far["counted"] += len(found.ids)
        if so_far["top"] is None and found.first is not None:
            so_far["top"] = str(int(found.first) + 1)
        so_far["cursor"] = found.cursor
        if found.cursor is None:
            return "counted"
        if time.monotonic() > ends:
            return "counting"


def _do(view: View, filter: Filter, chosen: Act, so_far: dict[str, Any]) -> str:
    ends = time.monotonic() + _STEP
    found = find(view.session, filter, so_far["cursor"] or so_far["top"], _BATCH, patience=0.1)
    so_far["cursor"] = found.cursor
    so_far["done"] += len(found.ids)
    if found.ids:
        so_far["changed"] += _some(view, chosen, found.ids, so_far["left"], ends)
    return "done" if found.cursor is None else "doing"


def _some(view: View, chosen: Act, ids: list[str], left: list[list[str]], ends: float) -> int:
    """Do it to these; where one spoils it, to the halves, down to that one, which is left out."""
    try:
        with view.session.part():
            return chosen.call(view, ids)
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.Error as error:
        if error.sqlstate is None or error.sqlstate[:2] in ("08", "57"):
            raise
        if len(ids) == 1:
            if len(left) < _TOLD:
                left.append(
                    [ids[0][:200], f"{error.diag.message_primary or error} {error.diag.message_detail or ''}"[:300]]
                )
            else:
                left.append([])
            return 0
        half = len(ids) // 2
        return _some(view, chosen, ids[:half], left, ends) + _some(view, chosen, ids[half:], left, ends)
