"""Values have one meaning, or are refused: texts, times, durations."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import psycopg.types.json
import pytest

import taskq_pg as taskq
from conftest import column
from taskq_pg import App
from taskq_pg.testing import drain

TEXTS = [
    "plain",
    "",
    "007",
    "123",
    "-1.5e3",
    "1" * 5000,
    "true",
    "null",
    '"q"',
    "[1]",
    '{"a": 1}',
    " 7 ",
    "NaN",
    "[" * 100_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:10])
def test_a_text_is_read_as_it_was_inserted(taskq_app: App, text: str) -> None:
    """Whatever it looks like, by a handler that declares a text and by one that declares nothing."""
    seen: list[Any] = []

    @taskq_app.task("declared")
    def declared(body: str) -> None:
        seen.append(body)

    @taskq_app.task("optional")
    def optional(body: str | None) -> None:
        seen.append(body)

    @taskq_app.task("free")
    def free(body: Any) -> None:
        seen.append(body)

    for action in ("declared", "optional", "free"):
        taskq_app.insert(action, text)
    drain(taskq_app)
    assert seen == [text] * 3


def test_how_texts_are_stored(taskq_app: App) -> None:
    stored = {text: column(taskq_app, taskq_app.insert("a", text), "body") for text in ("abc", "007", "123", '"q"')}
    assert stored == {"abc": "abc", "007": "007", "123": '"123"', '"q"': r'"\"q\""'}
    # What others have stored: a number is a text to what takes one.
    taskq_app.task("a")(lambda body: body)
    assert taskq_app.query("SELECT taskq.insert_task('raw', 'text', '123')")
    seen = []

    @taskq_app.task("text")
    def text(body: str) -> None:
        seen.append(body)

    drain(taskq_app)
    assert seen == ["123"]


@pytest.mark.parametrize("at", [datetime(2040, 1, 1), date(2040, 1, 1)], ids=["datetime", "date"])
@pytest.mark.parametrize("key", ["not_before", "expires_at"])
def test_a_time_without_a_zone_is_refused(taskq_app: App, key: str, at: date) -> None:
    with pytest.raises(ValueError, match=f"{key} is a time without a zone"):
        taskq_app.insert("a", **{key: at})
    with pytest.raises(ValueError, match=f"{key} is a time without a zone"):
        taskq_app.insert_tasks([{"action": "a", key: at}])
    taskq_app.insert("a", at, not_before=datetime(2040, 1, 1, tzinfo=UTC), metadata={"not_before": at})


def test_a_bare_number_is_no_duration(taskq_app: App) -> None:
    for call in (
        lambda: taskq_app.insert("a", delay=5),
        lambda: taskq_app.insert("a", backoff={"kind": "fixed", "initial": 5}),
        lambda: taskq_app.task("b", lease=5)(lambda: None),
        lambda: taskq_app.task("c", rate_limit=1, rate_period=5)(lambda: None) and taskq_app.setup(),
        lambda: taskq_app.wait("a", 5),
        lambda: taskq_app.work(grace=5),
        lambda: taskq.Retry(after=5),
        lambda: taskq.Complete(delay_children=5).returns(),
    ):
        with pytest.raises(TypeError, match='write "5 seconds"'):
            call()  # type: ignore[no-untyped-call]
        taskq_app.handlers.clear()
        taskq_app.task("a")(lambda: None)
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            taskq_app.insert("a", priority=number)
        with pytest.raises(TypeError, match="is no duration"):
            taskq_app.insert("a", delay=number)
    taskq_app.insert("a", delay=timedelta(seconds=5), backoff={"kind": "fixed", "initial": timedelta(seconds=5)})


def test_a_step_is_read_in_one_way(taskq_app: App) -> None:
    """Whatever loader of JSON the program has given psycopg."""
    seen = []

    @taskq_app.workflow("w")
    def workflow(ctx: taskq.Context) -> None:
        seen.append(ctx.step("half", lambda: {"f": 2.5})["f"])
        seen.append(ctx.wait_for("s", signal="early")["a"])
        ctx.sleep("z", "0")

    taskq_app.signal("early", {"a": 1.5})
    taskq_app.insert("w", id="w")
    psycopg.types.json.set_json_loads(partial(json.loads, parse_float=Decimal))
    try:
        drain(taskq_app)
        drain(taskq_app)
    finally:
        psycopg.types.json.set_json_loads(json.loads)
    assert {type(one) for one in seen} == {float}
