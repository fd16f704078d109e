"""What one can do: each is a call of one function, which the database allows the role, or refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, LiteralString
from urllib.parse import unquote

from starlette.responses import Response

from .database import Session
from .guard import Refused
from .render import CODED
from .view import View

Call = Callable[[View, list[str]], int]


@dataclass(frozen=True)
class Act:
    """A button: what it needs, says and does."""

    needs: str
    """The function that it calls."""
    label: str
    call: Call
    done: str
    """What is said of those that it has changed."""
    sure: str | None = None
    """What is asked before; None: nothing."""
    states: tuple[str, ...] = ()
    """Of tasks: in which it means something."""


def _tasks(query: LiteralString, *more: Callable[[View], Any]) -> Call:
    def call(view: View, ids: list[str]) -> int:
        return int(view.session.value(query, ids, *(one(view) for one in more)))

    return call


def _by(view: View) -> str:
    return f"by {view.user}, in the console"


def _priority(view: View) -> int:
    text = view.sent("priority") or ""
    try:
        return int(text)
    except ValueError:
        raise Refused(400, f"A priority is a whole number, not {text[:50]!r}. Nothing was changed.") from None


_LIVE = ("ready", "in-progress", "blocked", "scheduled")
_PENDING = ("ready", "blocked", "scheduled")
_SETTLED = ("completed", "aborted")

OF_TASKS: dict[str, Act] = {
    "retry": Act(
        "retry_tasks",
        "Retry",
        _tasks("SELECT taskq.retry_tasks(%s::text[])"),
        "came back, dependents included",
        None,
        ("aborted",),
    ),
    "now": Act(
        "update_tasks",
        "Run now",
        _tasks("SELECT taskq.update_tasks(%s::text[], delay => '0', if_started => 'skip')"),
        "not held back by time any more",
        None,
        ("scheduled",),
    ),
    "priority": Act(
        "update_tasks",
        "Set priority",
        _tasks("SELECT taskq.update_tasks(%s::text[], priority => %s::int, if_started => 'skip')", _priority),
        "with this priority",
        None,
        _PENDING,
    ),
    "rerun": Act(
        "rerun_tasks",
        "Rerun",
        _tasks("SELECT taskq.rerun_tasks(%s::text[])"),
        "start over, dependents included",
        "They start over, without their results and steps, and so does all that depends on them.",
        _SETTLED,
    ),
    "release": Act(
        "release_tasks",
        "Release",
        _tasks(
            "SELECT taskq.release_tasks(task_ids => %s::text[], status => %s)", lambda view: f"released {_by(view)}"
        ),
        "released",
        "Another worker may begin them at once: be sure that the workers that hold them are dead.",
        ("in-progress",),
    ),
    "cancel": Act(
        "cancel_tasks",
        "Cancel",
        _tasks("SELECT taskq.cancel_tasks(%s::text[], status => %s)", lambda view: f"cancelled {_by(view)}"),
        "cancelled",
        "They abort, and what depends on them aborts, too.",
        _LIVE,
    ),
    "delete": Act(
        "delete_tasks",
        "Delete",
        _tasks("SELECT taskq.delete_tasks(%s::text[])"),
        "deleted, dependents included",
        "They go for good, and what is left without any dependency goes with them.",
        (*_PENDING, *_SETTLED),
    ),
}


def _named(query: LiteralString, *names: str) -> Call:
    def call(view: View, ids: list[str]) -> int:
        value = view.session.value(query, *ids, *(_plain(view, name) for name in names))
        return 1 if value is None else int(value) if isinstance(value, bool | int) else 1

    return call


def _plain(view: View, name: str) -> str | None:
    value = view.sent(name)
    return unquote(value) if value is not None and name in CODED else value


def _answer(view: View, ids: list[str]) -> int:
    """Signal with what a form says, and who sent it."""
    result = _json(view, "result")
    if result is None:
        result = {}
        for key, value in view.form:
            kind, _, field = unquote(key).partition(":")
            if kind in ("text", "number", "boolean") and field:
                result[field] = _field(kind, field, value)
    if isinstance(result, dict):
        result = {**result, "by": view.user}
    return int(view.session.value("SELECT taskq.signal(%s, %s::text::jsonb)", ids[0], json.dumps(result)))


def _field(kind: str, field: str, value: str) -> Any:
    if kind == "boolean":
        return value == "true"
    if kind == "number" and value:
        try:
            return json.loads(value, parse_constant=float)
        except ValueError:
            raise Refused(400, f"{field[:100]} is a number, not {value[:50]!r}. Nothing was sent.") from None
    return value or None


def _json(view: View, name: str) -> Any:
    text = view.sent(name)
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"This is no JSON: {error}. Nothing was changed.") from None


def _edit(view: View, ids: list[str]) -> int:
    """Change what differs from what the form showed, unless another has changed it meanwhile."""
    query: LiteralString = "SELECT priority::text, not_before::text, body FROM taskq.tasks WHERE id = %s"
    row = view.session.row(query, ids[0])
    changed: dict[str, str | None] = {}
    for name in ("priority", "not_before", "body"):
        was, new = (_lines(view, f"was:{name}"), _lines(view, name))
        if new is None or new == was:
            continue
        if row is not None and (row[name] or "").replace("\r\n", "\n") != was:
            raise Refused(409, f"Another has changed the {name} since this page was loaded. Nothing was changed.")
        changed[name] = new
    if not changed:
        return 0
    edit: LiteralString = """SELECT taskq.update_tasks(%s::text[], priority => %s::text::int, body => %s::text,
        not_before => %s::text::timestamptz)"""
    return int(view.session.value(edit, ids, changed.get("priority"), changed.get("body"), changed.get("not_before")))


def _lines(view: View, name: str) -> str | None:
    # A browser sends the ends of lines as two characters.
    return next((value.replace("\r\n", "\n") for key, value in view.form if key == name), None)


def _limits(view: View, ids: list[str]) -> int:
    clear = [name for name in ("max_concurrency", "max_per_group") if not view.sent(name)]
    rate, period = view.sent("rate_limit"), view.sent("rate_period")
    if not rate:
        clear += ["rate_limit"]
        period = None
    query: LiteralString = """SELECT taskq.set_action(%s, max_concurrency => %s::text::int,
        max_per_group => %s::text::int, rate_limit => %s::text::int, rate_period => %s::text::interval,
        clear => %s::text[])"""
    view.session.value(query, ids[0], view.sent("max_concurrency"), view.sent("max_per_group"), rate, period, clear)
    return 1


OF_NAMES: dict[str, Act] = {
    "pause_action": Act("pause_action", "Pause", _named("SELECT taskq.pause_action(%s)"), "is paused"),
    "resume_action": Act("resume_action", "Resume", _named("SELECT taskq.resume_action(%s)"), "goes on"),
    "set_action": Act("set_action", "Set limits", _limits, "has these limits"),
    "pause_group": Act("pause_group", "Pause", _named("SELECT taskq.pause_group(%s)"), "is paused"),
    "resume_group": Act("resume_group", "Resume", _named("SELECT taskq.resume_group(%s)"), "goes on"),
    "retry_group": Act("retry_group", "Retry", _named("SELECT taskq.retry_group(%s)"), "came back"),
    "cancel_group": Act(
        "cancel_group",
        "Cancel",
        _named("SELECT taskq.cancel_group(%s)"),
        "were cancelled",
        "All of its tasks that have not ended abort.",
    ),
    "reset_group": Act(
        "reset_group",
        "Reset",
        _named("SELECT taskq.reset_group(%s)"),
        "are back at the start",
        "The whole group starts over; results, steps and tokens are gone.",
    ),
    "run_schedule": Act("run_schedule", "Run now", _named("SELECT taskq.run_schedule(%s)"), "runs once"),
    "pause_schedule": Act("pause_schedule", "Pause", _named("SELECT taskq.pause_schedule(%s)"), "is paused"),
    "resume_schedule": Act("resume_schedule", "Resume", _named("SELECT taskq.resume_schedule(%s)"), "goes on"),
    "unschedule": Act(
        "unschedule",
        "Remove",
        _named("SELECT taskq.unschedule(%s)"),
        "is removed",
        "The schedule goes; the tasks that it has inserted stay.",
    ),
    "delay_workgroup": Act(
        "delay_workgroup",
        "Hold back",
        _named("SELECT taskq.delay_workgroup(%s, %s::text::interval)", "delay"),
        "is held back until then",
    ),
    "release_actor": Act(
        "release_tasks",
        "Release all",
        _named("SELECT taskq.release_tasks(actors => ARRAY[%s::text])"),
        "were taken from this worker",
        "Other workers may begin these tasks at once: be sure that this one is dead.",
    ),
    "stop_waiting": Act("stop_waiting", "Stop waiting", _named("SELECT taskq.stop_waiting(%s)"), "calls came back"),
    "signal": Act("signal", "Answer", _answer, "is answered"),
    "edit": Act("update_tasks", "Save", _edit, "is changed"),
    "rewind": Act(
        "rewind_task",
        "Rewind",
        _named("SELECT taskq.rewind_task(%s, %s)", "step"),
        "steps are forgotten",
        "This step and all that were saved after it are forgotten, and done again.",
    ),
}
ACTS = {**OF_TASKS, **OF_NAMES}


def act(view: View) -> Response:
    """Do what the form asks for, once it is sure."""
    what = view.sent("do") or ""
    chosen = ACTS.get(what)
    ids = [unquote(value) for value in view.sent_all("id")]
    if chosen is None:
        raise Refused(400, "There is no such button. Nothing was changed.")
    if what in OF_TASKS and view.sent("all"):
        from .bulk import bulk

        return bulk(view)
    if not ids:
        return view.site.done(view, "Nothing was selected.", "none")
    if what in OF_NAMES:
        ids = ids[:1]
    if chosen.needs not in view.session.may:
        raise Refused(403, f"Your role may not call taskq.{chosen.needs}. Nothing was changed.")
    if chosen.sure is not None and not view.sent("sure"):
        return view.page("sure.html", act=chosen, what=what, ids=ids, form=view.form, back=view.site.back(view))
    number = chosen.call(view, ids)
    if number:
        many = f"{number:,} {'task' if number == 1 else 'tasks'}" if what in OF_TASKS or number > 1 else ids[0]
        return view.site.done(view, f"{chosen.label}: {many} {chosen.done}.")
    return view.site.done(view, _nothing(view.session, chosen, ids), "none")


def _nothing(session: Session, chosen: Act, ids: list[str]) -> str:
    """Say why nothing was changed: most of all since a task has gone on while the page was open."""
    states = session.rows("SELECT id, state FROM taskq.tasks WHERE id = ANY (%s)", ids[:5])
    told = ", ".join(f"{row['id'][:100]} is {row['state']}" for row in states)
    return f"{chosen.label}: nothing was changed{': ' + told if told else '; it is so already, or it is gone'}."
