"""Durable functions: what is saved is not done again, and waiting holds nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
import pydantic
import pytest

import taskq_pg as taskq
from conftest import column, state, until, working
from taskq_pg import App
from taskq_pg.steps import Steps
from taskq_pg.testing import drain, inserted, travel


@pytest.fixture(autouse=True)
def durable(taskq_app: App) -> None:
    if not taskq_app.query("SELECT FROM pg_proc WHERE proname = 'save_step'"):
        pytest.skip("this server's taskq has no steps")


@dataclass
class Payment:
    card: str
    number: int


def steps(app: App, task_id: str) -> list[str]:
    return [row[0] for row in app.query("SELECT step FROM taskq.steps WHERE task_id = %s ORDER BY position", [task_id])]


def run(app: App, task_id: str) -> Any:
    drain(app)
    return column(app, task_id, "result")


def test_a_step_is_run_once(taskq_app: App) -> None:
    calls = Counter()

    def charge(card: str, key: str) -> Payment:
        calls["charge"] += 1
        return Payment(card, len(key))

    @taskq_app.workflow("order", backoff={"kind": "fixed", "initial": "0 seconds"})
    def order(ctx: taskq.Context, body: str) -> dict:
        payment = ctx.step("pay", charge, body, key=f"{ctx.id}/pay")
        assert payment == Payment("visa", 5)
        calls["entered"] += 1
        if calls["entered"] == 1:
            raise LookupError("after the step")
        return {"number": payment.number, "nothing": ctx.step("nothing", lambda: None)}

    taskq_app.insert("order", "visa", id="o")
    with pytest.raises(LookupError):
        drain(taskq_app)
    drain(taskq_app)
    assert column(taskq_app, "o", "result") == {"number": 5, "nothing": None}
    assert calls == {"charge": 1, "entered": 2}
    assert steps(taskq_app, "o") == ["pay", "nothing"]


def test_an_error_in_a_step_keeps_the_earlier_ones(taskq_app: App) -> None:
    calls = Counter()

    @taskq_app.workflow("order", backoff={"kind": "fixed", "initial": "0 seconds"})
    async def order(ctx: taskq.AsyncContext) -> int:
        async def first() -> int:
            calls["first"] += 1
            return 1

        def second() -> int:
            calls["second"] += 1
            if calls["second"] < 3:
                raise ConnectionError("try again")
            return 2

        return await ctx.step("first", first) + await ctx.step("second", second)

    taskq_app.insert("order", id="o")
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "o", "result") == 3
    assert calls == {"first": 1, "second": 3}
    assert column(taskq_app, "o", "num_tries") == 3


def test_names_are_unique(taskq_app: App) -> None:
    @taskq_app.workflow("twice")
    def twice(ctx: taskq.Context) -> None:
        ctx.step("a", int)
        ctx.step("a", int)

    @taskq_app.workflow("loop")
    def loop(ctx: taskq.Context) -> list[int]:
        return [ctx.step("a", lambda n=n: n, unique=False) for n in range(3)]

    taskq_app.insert("twice", id="t", max_tries=1)
    taskq_app.insert("loop", id="l")
    taskq_app.work(until_idle=True)
    assert 'a second step is named "a"' in str(column(taskq_app, "t", "status"))
    assert column(taskq_app, "l", "result") == [0, 1, 2]
    assert steps(taskq_app, "l") == ["a", "a#2", "a#3"]


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(object, "object is no JSON"), (timedelta, "timedelta is no JSON, give its total_seconds()")],
)
def test_a_result_that_is_no_json_names_its_step(taskq_app: App, kind: type, problem: str) -> None:
    @taskq_app.workflow("odd")
    def odd(ctx: taskq.Context) -> None:
        ctx.step("strange", kind)

    taskq_app.insert("odd", id="o", max_tries=1)
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "o", "status") == f'TypeError: the result of step "strange" is no JSON: {problem}'


class Paid(NamedTuple):
    receipt: str


class Name(str): ...


def paid() -> Paid:
    return Paid("r 1")


def named() -> Name:
    return Name("ann")


@pytest.mark.parametrize("function", [paid, named])
@pytest.mark.parametrize("kind", ["step", "transaction", "async step", "async transaction"])
def test_a_result_that_its_annotation_cannot_be_read_as_is_not_saved(
    taskq_app: App, function: Callable[[], Any], kind: str
) -> None:
    """As what is no JSON: code that is mended goes on. Without an annotation it is what its JSON says."""
    annotated = function.__annotations__["return"]

    def book(_: psycopg.Connection) -> annotated:
        return function()

    async def book_async(_: psycopg.AsyncConnection) -> annotated:
        return function()

    async def do(ctx: taskq.AsyncContext) -> Any:
        return await (ctx.step("odd", function) if kind == "async step" else ctx.transaction("odd", book_async))

    if kind.startswith("async"):
        taskq_app.workflow("w")(do)
    else:
        taskq_app.workflow("w")(
            lambda ctx: ctx.step("odd", function) if kind == "step" else ctx.transaction("odd", book)
        )
    taskq_app.workflow("plain")(lambda ctx: ctx.step("odd", lambda: function()))
    taskq_app.insert("w", id="w", max_tries=1)
    taskq_app.insert("plain", id="p")
    taskq_app.work(until_idle=True)
    problem = f'BodyError: the result of step "odd" cannot be read as {annotated.__name__}'
    assert column(taskq_app, "w", "status") == problem
    assert steps(taskq_app, "w") == []
    assert column(taskq_app, "p", "result") in (["r 1"], "ann")


def test_a_signal(taskq_app: App) -> None:
    entered = Counter()

    @taskq_app.workflow("order")
    def order(ctx: taskq.Context, body: dict) -> dict:
        entered[ctx.id] += 1
        return {"by": ctx.wait_for("approved", signal=f"approve {ctx.id}", timeout="2 days")}

    taskq_app.insert("order", {}, id="later", max_tries=1)
    taskq_app.insert("order", {}, id="early", max_tries=1)
    assert taskq_app.signal("approve early", {"by": "ann"})
    drain(taskq_app)
    assert column(taskq_app, "early", "result") == {"by": {"by": "ann"}}
    assert state(taskq_app, "later") == "blocked"
    assert column(taskq_app, "later", "num_tries") == 0
    assert "approve later" in str(taskq_app.query("SELECT taskq.why('later')"))
    assert taskq_app.query("SELECT task_id, waits_for FROM taskq.waits") == [("later", ["approve later"])]
    assert taskq_app.signal("approve later", "yes")
    assert not taskq_app.signal("approve later", "no"), "the first one counts"
    drain(taskq_app)
    assert column(taskq_app, "later", "result") == {"by": "yes"}
    assert entered == {"later": 2, "early": 2}


def test_a_signal_in_the_transaction_of_its_sender(taskq_app: App) -> None:
    with taskq_app.connections.use() as connection:
        with pytest.raises(LookupError), connection.transaction():
            taskq_app.signal("s", connection=connection)
            raise LookupError
    assert inserted(taskq_app, "signal") == []


def test_a_wait_times_out(taskq_app: App) -> None:
    @taskq_app.workflow("order")
    async def order(ctx: taskq.AsyncContext) -> str:
        try:
            return await ctx.wait_for("approved", signal="approve", timeout="2 days")
        except taskq.TimedOut:
            return await ctx.step("reminded", lambda: "reminded")

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    travel(taskq_app, "1 day")
    drain(taskq_app)
    assert state(taskq_app, "o") == "blocked"
    travel(taskq_app, "25 hours")
    drain(taskq_app)
    assert column(taskq_app, "o", "result") == "reminded"
    assert taskq_app.signal("approve"), "the signal itself stays, for others"


def test_a_signal_that_is_cancelled(taskq_app: App) -> None:
    @taskq_app.workflow("order")
    def order(ctx: taskq.Context) -> str:
        try:
            ctx.wait_for("approved", signal="approve")
        except taskq.Aborted as error:
            return f"{error.task_id}: {error.status}"
        return "approved"

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    taskq_app.query("SELECT taskq.cancel_tasks('{approve}', 'not now')")
    assert run(taskq_app, "o") == "approve: not now"


def test_map_and_call(taskq_app: App) -> None:
    @taskq_app.task("square")
    def square(n: int) -> int:
        if n == 13:
            raise taskq.Reject("bad luck")
        return n * n

    @taskq_app.workflow("sum")
    def total(ctx: taskq.Context, numbers: list[int]) -> int:
        assert ctx.map("none", "square", []) == []
        squares = ctx.map("squares", "square", numbers, priority=3)
        return sum(squares) + ctx.call("one", "square", 1)

    @taskq_app.workflow("careful")
    def careful(ctx: taskq.Context) -> list:
        results = ctx.map("squares", "square", [1, 13], return_aborted=True)
        try:
            ctx.call("one", "square", 13)
        except taskq.Aborted as error:
            return [results[0], str(results[1]), error.status]
        raise AssertionError

    taskq_app.insert("sum", [3, 2, 1], id="s")
    taskq_app.insert("sum", [13], id="fails", max_tries=1)
    taskq_app.insert("careful", id="c")
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "s", "result") == 15
    assert column(taskq_app, "s", "num_tries") == 1
    assert [task.row["priority"] for task in inserted(taskq_app, id=child(taskq_app, "s/squares/0"))] == [3]
    assert column(taskq_app, "fails", "status") == f"Aborted: {child(taskq_app, 'fails/squares/0')}: bad luck"
    assert column(taskq_app, "c", "result") == [1, f"{child(taskq_app, 'c/squares/1')}: bad luck", "bad luck"]


@pytest.mark.parametrize("kind", ["call", "map"])
def test_children_whose_key_another_task_holds(taskq_app: App, kind: str) -> None:
    """The task that holds the key does their work, and its result is theirs."""
    taskq_app.task("print")(lambda label: f"printed {label}")

    @taskq_app.workflow("order", max_tries=1)
    def order(ctx: taskq.Context) -> Any:
        if kind == "call":
            return ctx.call("label", "print", "7", unique_by={"key": "label"})
        return ctx.map("labels", "print", ["7", "8", "7"], unique_by=True)

    taskq_app.insert("print", "7", id="first", unique_by={"key": "label"} if kind == "call" else True)
    taskq_app.insert("order", id="o")
    taskq_app.work(until_idle=True, actions=["order"])
    assert state(taskq_app, "o") == "blocked"
    printed = ["printed 7", "printed 8", "printed 7"]
    assert run(taskq_app, "o") == (printed[0] if kind == "call" else printed)
    assert len(inserted(taskq_app, "print")) == (1 if kind == "call" else 2)


def child(app: App, name: str) -> str:
    """Return the name of a child: there is such a task, and no other of that name."""
    assert app.query("SELECT id FROM taskq.tasks WHERE starts_with(id, %s)", [name]) == [(name,)]
    return name


@pytest.mark.parametrize("again", ["delete", "replace", "rewind"])
def test_a_workflow_begun_anew_has_new_children(taskq_app: App, again: str) -> None:
    taskq_app.task("double")(lambda n: 2 * n)
    numbers = [1]

    @taskq_app.workflow("report")
    def report(ctx: taskq.Context) -> list:
        first = ctx.step("numbers", lambda: numbers[0])
        return [*ctx.map("m", "double", [first, first + 1]), ctx.call("c", "double", first)]

    taskq_app.insert("report", id="r")
    assert run(taskq_app, "r") == [2, 4, 2]
    numbers[0] = 10
    if again == "delete":
        taskq_app.query("SELECT taskq.delete_tasks('{r}')")
        taskq_app.insert("report", id="r")
    elif again == "replace":
        taskq_app.query("""SELECT taskq.replace_tasks('[{"id": "r", "action": "report"}]')""")
    else:
        taskq_app.query("SELECT taskq.rewind_task('r', 'numbers')")
        taskq_app.query("SELECT taskq.rerun_tasks('{r}')")
    assert run(taskq_app, "r") == [20, 22, 20]
    names = {task.id.partition("/x")[0] for task in inserted(taskq_app, "double")}
    assert names == {"r/m/0", "r/m/1", "r/c/0"}


def test_children_of_different_names(taskq_app: App) -> None:
    taskq_app.task("double")(lambda n: 2 * n)

    @taskq_app.workflow("outer")
    def outer(ctx: taskq.Context) -> list:
        return [
            ctx.map("x", "double", [1]),
            ctx.call("x/0", "double", 2),
            ctx.call("a", "inner"),
            ctx.call("a/b", "double", 3),
        ]

    @taskq_app.workflow("inner")
    def inner(ctx: taskq.Context) -> int:
        return ctx.call("b", "double", 4)

    @taskq_app.workflow("mine")
    def mine(ctx: taskq.Context) -> list:
        return [ctx.step("m:tasks", lambda: "mine"), ctx.map("m", "double", [1])]

    taskq_app.insert("outer", id="o")
    taskq_app.insert("mine", id="m", max_tries=1)
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "o", "result") == [[2], 4, 8, 6]
    assert str(column(taskq_app, "m", "status")).startswith('ValueError: a second step is named "m:tasks"')


@pytest.mark.parametrize("clock", ["goes on", "stands still"])
def test_a_signal_that_came_before_a_wait_without_time(taskq_app: App, clock: str) -> None:
    if clock == "stands still":
        travel(taskq_app, "1 day")

    @taskq_app.workflow("wait")
    def wait(ctx: taskq.Context, name: str) -> object:
        try:
            return ctx.wait_for("w", signal=name, timeout="0 seconds")
        except taskq.TimedOut:
            return "timed out"

    taskq_app.signal("came", "here")
    for name in ("came", "did not"):
        taskq_app.insert("wait", name, id=f"wait {name}")
    drain(taskq_app)
    assert column(taskq_app, "wait came", "result") == "here"
    assert column(taskq_app, "wait did not", "result") == "timed out"


@pytest.mark.parametrize("comes", ["in time", "too late"])
def test_a_signal_beside_an_entry_that_dies_before_it_has_suspended(
    taskq_app: App, comes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a wait tells is what the queue has, however the first entry has ended."""

    @taskq_app.workflow("order", backoff={"kind": "fixed", "initial": "1 minute"})
    def order(ctx: taskq.Context) -> object:
        try:
            return ctx.wait_for("approved", signal="approve", timeout="2 days")
        except taskq.TimedOut:
            return "timed out"

    suspend = Steps._suspend

    def die_first(steps: Steps, name: str, **returns: Any) -> taskq.Suspend:
        if steps.task.num_tries == 1:
            raise LookupError("before the suspension")
        return suspend(steps, name, **returns)

    monkeypatch.setattr(Steps, "_suspend", die_first)
    taskq_app.insert("order", id="o")
    with pytest.raises(LookupError):
        drain(taskq_app)
    if comes == "in time":
        travel(taskq_app, "1 day")
        taskq_app.signal("approve", "yes")
        travel(taskq_app, "2 days")
    else:
        travel(taskq_app, "3 days")
        taskq_app.signal("approve", "yes")
    assert run(taskq_app, "o") == ("yes" if comes == "in time" else "timed out")


class Bill(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    order_id: int = pydantic.Field(alias="orderId")

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return 2 * self.order_id


def test_results_of_steps_are_read_as_they_were_returned(taskq_app: App) -> None:
    def bill() -> Bill:
        return Bill(orderId=3)

    def number() -> int:
        return True

    @taskq_app.workflow("w", max_tries=1)
    def workflow(ctx: taskq.Context, body: Bill) -> list:
        return [ctx.step("bill", bill).double, ctx.step("number", number), body.order_id]

    taskq_app.insert("w", Bill(orderId=4), id="w")
    assert run(taskq_app, "w") == [6, True, 4]


def test_waiting_for_tasks(taskq_app: App) -> None:
    taskq_app.task("load")(lambda n: n)

    @taskq_app.workflow("after")
    def after(ctx: taskq.Context) -> list:
        return ctx.wait_for("loads", tasks=["b", "a"])

    taskq_app.insert_many("load", [1, 2], ids=["a", "b"])
    taskq_app.insert("after", id="x")
    assert run(taskq_app, "x") == [2, 1]


def test_sleep(taskq_app: App) -> None:
    @taskq_app.workflow("slow")
    def slow(ctx: taskq.Context) -> str:
        ctx.sleep("cool off", "1 hour")
        return "slept"

    taskq_app.insert("slow", id="s", max_tries=1)
    drain(taskq_app)
    assert state(taskq_app, "s") in ("blocked", "scheduled")
    assert column(taskq_app, "s", "num_tries") == 0
    travel(taskq_app, "59 minutes")
    drain(taskq_app)
    assert state(taskq_app, "s") in ("blocked", "scheduled")
    travel(taskq_app, "2 minutes")
    drain(taskq_app)
    assert column(taskq_app, "s", "result") == "slept"


@pytest.mark.parametrize("flavour", ["function", "statements"])
def test_a_transaction_is_exactly_once(taskq_app: App, flavour: str) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute("CREATE TABLE stock AS SELECT 10 AS n")

    def book(connection: psycopg.Connection, by: int) -> int:
        connection.execute("UPDATE stock SET n = n - %s", [by])
        return connection.execute("SELECT n FROM stock").fetchone()[0]

    @taskq_app.workflow("order", backoff={"kind": "fixed", "initial": "0 seconds"})
    def order(ctx: taskq.Context, body: None) -> str:
        if flavour == "function":
            assert ctx.transaction("book", book, 3) == 7
        else:
            with ctx.transaction("book") as statements:
                statements.execute("UPDATE stock SET n = n - %s", [3])
        if ctx.task.num_tries < 3:
            raise LookupError
        return "booked"

    taskq_app.insert("order", id="o")
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "o", "result") == "booked"
    assert taskq_app.query("SELECT n FROM stock") == [(7,)]


def test_a_transaction_that_fails_leaves_nothing(taskq_app: App) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute("CREATE TABLE stock AS SELECT 10 AS n")

    @taskq_app.workflow("order")
    def order(ctx: taskq.Context) -> None:
        with ctx.transaction("book") as statements:
            statements.execute("UPDATE stock SET n = 0")
            raise LookupError

    taskq_app.insert("order", id="o", max_tries=1)
    taskq_app.work(until_idle=True)
    assert taskq_app.query("SELECT n FROM stock") == [(10,)]
    assert steps(taskq_app, "o") == []


def test_a_workflow_that_is_lost_ends_at_its_next_step(taskq_app: App) -> None:
    reached = []

    @taskq_app.workflow("order")
    def order(ctx: taskq.Context) -> None:
        ctx.step("cancel", lambda: taskq_app.query("SELECT taskq.cancel_tasks('{o}')")[0][0])
        reached.append("the end")

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    assert reached == []
    assert column(taskq_app, "o", "status") == "cancelled"


@pytest.mark.parametrize("kind", ["function", "statements", "coroutine", "async statements"])
def test_the_void_token_of_another_task_is_no_loss_of_the_workflow(taskq_app: App, kind: str) -> None:
    """The try fails at once, and says why, instead of with the end of its lease."""
    query = "SELECT taskq.return_task('another', gen_random_uuid())"

    async def finish(connection: psycopg.AsyncConnection) -> None:
        await connection.execute(query)

    if kind in ("function", "statements"):

        @taskq_app.workflow("w")
        def workflow(ctx: taskq.Context) -> None:
            if kind == "function":
                ctx.transaction("finish", lambda connection: connection.execute(query) and None)
            else:
                with ctx.transaction("finish") as statements:
                    statements.execute(query)

    else:

        @taskq_app.workflow("w")
        async def workflow_async(ctx: taskq.AsyncContext) -> None:
            if kind == "coroutine":
                await ctx.transaction("finish", finish)
            else:
                async with ctx.transaction("finish") as statements:
                    await statements.execute(query)

    taskq_app.insert("signal", id="another")
    taskq_app.insert("w", id="w", max_tries=1)
    taskq_app.work(until_idle=True)
    assert state(taskq_app, "w") == "aborted"
    assert "another" in str(column(taskq_app, "w", "status"))


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_workflow_that_is_lost_in_a_transaction_writes_nothing(
    taskq_app: App, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute("CREATE TABLE stock AS SELECT 10 AS n")

    def book(connection: psycopg.Connection) -> None:
        connection.execute("UPDATE stock SET n = 0")
        taskq_app.query("SELECT taskq.cancel_tasks('{w}')")

    async def book_async(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("UPDATE stock SET n = 0")
        taskq_app.query("SELECT taskq.cancel_tasks('{w}')")

    if kind == "function":
        taskq_app.workflow("w")(lambda ctx: ctx.transaction("book", book))
    else:

        @taskq_app.workflow("w")
        async def workflow(ctx: taskq.AsyncContext) -> None:
            await ctx.transaction("book", book_async)

    taskq_app.insert("w", id="w")
    drain(taskq_app)
    assert taskq_app.query("SELECT n FROM stock") == [(10,)]
    assert column(taskq_app, "w", "status") == "cancelled"
    assert "failed on try" not in caplog.text, "it is lost, and has not failed"


def test_an_except_does_not_swallow_a_wait(taskq_app: App) -> None:
    @taskq_app.workflow("order")
    def order(ctx: taskq.Context) -> str:
        try:
            return ctx.wait_for("approved", signal="approve")
        except Exception:
            return "swallowed"

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    taskq_app.signal("approve", "well")
    assert run(taskq_app, "o") == "well"


def test_code_changes_while_a_workflow_waits(taskq_app: App) -> None:
    """The old code waits; the new one has another step before, and one behind."""

    @taskq_app.workflow("order")
    def old(ctx: taskq.Context) -> str:
        ctx.step("one", lambda: 1)
        return ctx.wait_for("approved", signal="approve")

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    taskq_app.handlers.clear()

    @taskq_app.workflow("order")
    def new(ctx: taskq.Context) -> list:
        first = ctx.step("one", lambda: "never called")
        added = ctx.step("added before", lambda: 0)
        approval = ctx.wait_for("approved", signal="approve")
        return [first, added, approval, ctx.step("added behind", lambda: 2)]

    taskq_app.signal("approve", "yes")
    assert run(taskq_app, "o") == [1, 0, "yes", 2]


def test_other_bodies_while_a_map_waits(taskq_app: App) -> None:
    taskq_app.task("square")(lambda n: n * n)
    numbers = [1, 2]

    @taskq_app.workflow("squares")
    def squares(ctx: taskq.Context) -> list:
        return ctx.map("all", "square", numbers)

    taskq_app.insert("squares", id="s")
    taskq_app.work(until_idle=True, actions=["squares"])
    assert state(taskq_app, "s") == "blocked"
    numbers.append(3)
    assert run(taskq_app, "s") == [1, 4]
    assert len(inserted(taskq_app, "square")) == 2


def test_what_a_workflow_waits_for_may_have_been_removed(taskq_app: App) -> None:
    """Nothing is inserted twice, and the workflow says what is missing instead of waiting for ever."""
    taskq_app.task("square")(lambda n: n * n)
    backoff = {"kind": "fixed", "initial": "0 seconds"}

    @taskq_app.workflow("squares", max_tries=2, backoff=backoff)
    def squares(ctx: taskq.Context) -> list:
        return ctx.map("all", "square", [1, 2])

    taskq_app.insert("squares", id="s")
    taskq_app.work(until_idle=True, actions=["squares"])
    taskq_app.query("SELECT taskq.delete_tasks(ARRAY[%s])", [child(taskq_app, "s/all/0")])
    taskq_app.work(until_idle=True)
    assert state(taskq_app, "s") == "aborted"
    assert "s/all/0" in str(column(taskq_app, "s", "status"))


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_children_are_inserted_once_whatever_becomes_of_the_answer(
    taskq_app: App, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that has ended and is removed before the next entry is missing, and not performed twice."""
    performed, lost = [], []
    query, query_async = taskq_app.query, taskq_app.query_async

    def lose(statement: str) -> None:
        if "insert_tasks_report" in statement and not lost:
            lost.append(statement)
            until(lambda: performed and not inserted(taskq_app, "child"))
            raise psycopg.OperationalError("the answer is lost")

    def losing(statement: str, arguments: Any = ()) -> Any:
        rows = query(statement, arguments)
        lose(statement)
        return rows

    async def losing_async(statement: str, arguments: Any = ()) -> Any:
        rows = await query_async(statement, arguments)
        await asyncio.to_thread(lose, statement)
        return rows

    taskq_app.task("child", retention="0 seconds")(lambda n: performed.append(n))
    if kind == "function":
        taskq_app.workflow("w")(lambda ctx: ctx.map("m", "child", [1]))
    else:

        @taskq_app.workflow("w")
        async def workflow(ctx: taskq.AsyncContext) -> list:
            return await ctx.map("m", "child", [1])

    taskq_app.insert("w", id="w", max_tries=1)
    monkeypatch.setattr(taskq_app, "query", losing)
    monkeypatch.setattr(taskq_app, "query_async", losing_async)
    with working(taskq_app):
        until(lambda: state(taskq_app, "w") in ("aborted", "completed"))
    assert performed == [1]
    assert steps(taskq_app, "w") == ["m:tasks"]
    assert '"w/m/0"' in str(column(taskq_app, "w", "status"))


def test_a_worker_that_waits_holds_nothing(taskq_app: App) -> None:
    @taskq_app.workflow("order")
    def order(ctx: taskq.Context) -> str:
        return ctx.wait_for("approved", signal=f"approve {ctx.id}")

    taskq_app.insert_many("order", [None] * 50, ids=[str(n) for n in range(50)])
    with working(taskq_app, concurrency=1):
        until(lambda: len(taskq_app.query("SELECT FROM taskq.waits")) == 50)
        assert not taskq_app.query("SELECT FROM taskq.actors")
        for n in range(50):
            taskq_app.signal(f"approve {n}", n)
        query = "SELECT count FROM taskq.count_tasks(actions => '{order}', states => '{completed}')"
        until(lambda: taskq_app.query(query) == [(50,)])
