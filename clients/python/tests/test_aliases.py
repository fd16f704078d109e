"""Annotations that stand for others."""

import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar, TypeVarTuple

import pytest
import typing_extensions

import taskq_pg as taskq
from conftest import column
from taskq_pg import App, BodyError
from taskq_pg.bodies import convert, read_body

if sys.version_info >= (3, 12):
    from typing import TypeAliasType
else:
    from typing_extensions import TypeAliasType

A = TypeVar("A")
B = TypeVar("B")
Ts = TypeVarTuple("Ts")


@dataclass
class Point:
    x: int


@dataclass
class Flat:
    y: int = 0


Uid = TypeAliasType("Uid", int)
Name = TypeAliasType("Name", str)
Names = TypeAliasType("Names", list[Name])
Swapped = TypeAliasType("Swapped", dict[B, list[A]], type_params=(A, B))
Same = TypeAliasType("Same", A, type_params=(A,))
Row = TypeAliasType("Row", tuple[A, *Ts], type_params=(A, Ts))
Kept = TypeAliasType("Kept", dict[A, tuple[*Ts, B]], type_params=(A, Ts, B))
Other = typing_extensions.TypeAliasType("Other", int)


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("5", Uid, 5),
        ("5", Uid | None, 5),
        ("5", Name, "5"),
        ('["5"]', Names, ["5"]),
        ('{"5": ["6"]}', Swapped[str, int], {5: ["6"]}),
        ("[5]", Same[list[Uid]], [5]),
        ('["5", 6, null]', Row[str, int, None], ("5", 6, None)),
        ('["5"]', Row[str], ("5",)),
        ('{"5": [6, "7", null]}', Kept[int, int, str, None], {5: (6, "7", None)}),
        ("5", Other, 5),
        ('{"x": 1}', TypeAliasType("F", Flat) | TypeAliasType("P", Point), Point(1)),
    ],
)
def test_an_alias(text: str, annotation: Any, value: Any) -> None:
    assert read_body(text, annotation) == value


def test_a_value_that_does_not_fit_an_alias() -> None:
    with pytest.raises(BodyError, match="the body is a text, not an integer"):
        convert("x", Uid)


async def five() -> int:
    return 5


def awaitable() -> Awaitable[int]:
    return five()


def coroutine() -> Coroutine[Any, Any, Uid]:
    return five()


def bare() -> Awaitable:
    return five()


def alias() -> Uid:
    return 5


@pytest.mark.parametrize("function", [awaitable, coroutine, bare, alias])
def test_a_step_whose_function_returns_an_awaitable(taskq_app: App, function: Callable[[], Any]) -> None:
    @taskq_app.workflow("w")
    async def workflow(ctx: taskq.AsyncContext, body: Uid) -> list:
        return [body, await ctx.step("five", function)]

    taskq_app.insert("w", 4, id="w", max_tries=1)
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "w", "result") == [4, 5]
