"""What is read from JSON is what the annotation says, and what does not fit says where."""

import enum
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pydantic
import pytest
import typing_extensions

from taskq_pg import App, BodyError, Complete, Context, Task
from taskq_pg.bodies import body_text, convert, dumps, dumps_again, read_body
from taskq_pg.testing import inserted


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Shape:
    points: list[Point]
    colour: Colour | None = None
    tags: set[str] = field(default_factory=set)


class Options(TypedDict):
    name: str
    size: NotRequired[int]


class Fixed(typing_extensions.TypedDict):
    id: typing_extensions.ReadOnly[int]
    at: typing_extensions.ReadOnly[NotRequired[date]]


class Order(pydantic.BaseModel):
    id: int
    at: datetime


@dataclass
class Bare:
    x: int


class Renamed(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    a: int

    @pydantic.computed_field
    @property
    def b(self) -> int:
        return self.a * 2


VALUES = [
    (Shape([Point(1, 2.5), Point(3)], Colour.RED, {"a"}), Shape),
    ({"name": "a", "size": 3}, Options),
    ({"id": 3, "at": date(2030, 1, 2)}, Fixed),
    ({"id": 3}, Bare | Fixed),
    (Order(id=1, at=datetime(2030, 1, 2, tzinfo=UTC)), Order),
    ([Order(id=1, at=datetime(2030, 1, 2, tzinfo=UTC))], list[Order]),
    ({"a": Point(1)}, dict[str, Point]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ([1, 2], list[int]),
    (None, int | None),
    (5, int | None),
    (UUID(int=1), UUID),
    (Decimal("1.50"), Decimal),
    (date(2030, 1, 2), date),
    (Path("a/b"), Path),
    ("red", Literal["red", "blue"]),
    (Colour.RED, Colour),
    (7, Any),
    ({"a": [1, None, "x"]}, Any),
    ({1: "a"}, dict[int, str]),
    ({"2030-01-02": 1}, dict[str, int]),
    (Point(1, 2.0), Bare | Point),
    (Bare(1), Bare | Point),
    (Renamed(orderId=3), Renamed),
    ([Computed(a=1)], list[Computed]),
    (None, Any),
    (3.5, float),
    (True, bool),
]


@pytest.mark.parametrize(("value", "annotation"), VALUES)
def test_a_value_comes_back_as_it_was(value: Any, annotation: Any) -> None:
    assert convert(json.loads(dumps_again(value)), annotation) == value
    if not isinstance(value, str):
        assert read_body(body_text(value), annotation) == value


def test_a_string_is_stored_as_it_is() -> None:
    assert body_text("hello") == "hello"
    assert body_text(None) is None
    assert read_body("hello") == "hello"
    assert read_body("5", str) == "5"
    assert read_body("5") == 5
    assert read_body("hello", str | None) == "hello"
    assert read_body("5", str | None) == "5"
    assert read_body(None, str | None) is None
    assert read_body('"null"', str | None) == "null"
    assert read_body('"x"', str | int) == "x"
    assert read_body("red", Literal["red"]) == "red"
    assert read_body("2030-01-02", date) == date(2030, 1, 2)
    assert read_body('{"orderId": 3}', Renamed) == Renamed(orderId=3)
    assert json.loads(dumps(Computed(a=1))) == {"a": 1, "b": 2}


def test_an_integer_is_a_number() -> None:
    assert read_body("3", float) == 3.0


def test_keys_that_a_dataclass_does_not_know_are_ignored() -> None:
    assert read_body('{"x": 1, "newer": 2}', Point) == Point(1)


MISFITS = [
    ('{"y": 1}', Point, "the body lacks 'x'"),
    ('{"x": "1"}', Point, "the body.x is a text, not an integer"),
    ('{"x": true}', Point, "the body.x is a boolean, not an integer"),
    ("[]", Point, "the body is an array, not an object (Point)"),
    ('{"points": [{"x": 1}, {"x": null}]}', Shape, "the body.points[1].x is null, not an integer"),
    ('{"points": [], "colour": "blue"}', Shape, "the body.colour is none of ['red']; the body.colour is"),
    ('{"size": 1}', Options, "the body lacks 'name'"),
    ('{"name": "a", "size": "b"}', Options, "the body.size is a text, not an integer"),
    ('{"id": "x", "at": "2030-01-01T00:00:00Z"}', Order, "the body.id: Input should be a valid integer"),
    ("[1]", tuple[int, str], "the body is an array, not an array of 2"),
    ('"green"', Literal["red", "blue"], "the body is none of 'red', 'blue'"),
    ("{", Point, "the body is no JSON"),
    ("nonsense", int, "the body is no JSON"),
    (None, Point, "the body is null, not an object (Point)"),
    ('"x"', UUID, "the body is a text, not UUID"),
    ("5", UUID, "the body is a number, not UUID"),
    ("[1]", UUID, "the body is an array, not UUID"),
    ("1" + "0" * 400, float, "the body is too large for a float"),
    ("[{}]", set[dict], "the body is no set"),
    ('{"a": 1}', dict[int, int], "a key of the body is a text, not an integer"),
    ("1", bytes, "the body cannot be read as bytes"),
]


@pytest.mark.parametrize(("text", "annotation", "message"), MISFITS)
def test_what_does_not_fit_says_where(text: str | None, annotation: Any, message: str) -> None:
    with pytest.raises(BodyError) as caught:
        read_body(text, annotation)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("value", [object(), float("nan"), {1: object()}, b"bytes", {"a": {2j}}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


def test_a_body_is_stored_alike_however_it_is_inserted(taskq_app: App) -> None:
    body = Computed(a=1)

    @taskq_app.task("returns")
    def returns() -> Complete:
        return Complete(children=[{"id": "returned", "action": "x", "body": body}])

    @taskq_app.task("completes")
    def completes(_: None, task: Task) -> None:
        with taskq_app.connections.use() as connection:
            task.complete(connection=connection, children=[{"id": "completed", "action": "x", "body": body}])

    @taskq_app.workflow("calls")
    def calls(ctx: Context) -> None:
        ctx.call("called", "x", body)

    taskq_app.insert("x", body, id="one")
    taskq_app.insert_many("x", [body], ids=["many"])
    taskq_app.insert_tasks([{"id": "each", "action": "x", "body": body}])
    for action in ("returns", "completes", "calls"):
        taskq_app.insert(action)
    taskq_app.work(until_idle=True)
    assert [task.row["body"] for task in inserted(taskq_app, "x")] == ['{"a": 1}'] * 6


SECRET = "correct horse battery staple"


class Secretive(pydantic.BaseModel):
    token: int
    more: dict[str, int] = {}


@dataclass
class Secrets:
    token: int
    more: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize(
    "annotation", [Secrets, Secretive, Secrets | None, UUID, int, Literal["x"], Colour, dict[int, int]]
)
def test_what_does_not_fit_is_not_shown(taskq_app: App, annotation: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the status, which many may read, nor in the log, with all that stands behind the error."""
    bodies = [SECRET, {"token": SECRET}, [SECRET], {SECRET: 1}]

    def handler(body: Any) -> None:
        raise AssertionError

    handler.__annotations__["body"] = annotation
    taskq_app.task("secret")(handler)
    for body in bodies:
        taskq_app.query("SELECT taskq.insert_task(NULL, 'secret', %s::text)", [body_text(body)])
    taskq_app.work(until_idle=True)
    told = [task.status for task in inserted(taskq_app, "secret", state="aborted")]
    assert len(told) == len(bodies)
    assert not [text for text in told if "horse" in text]
    assert "secret" in caplog.text
    assert "horse" not in caplog.text
