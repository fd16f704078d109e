"""Each program needs the rights of its part, and no more."""

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

import taskq_pg as taskq
from conftest import column, conninfo
from taskq_pg import App


@pytest.fixture
def as_role(taskq_app: App) -> Iterator[Callable[..., str]]:
    """Where to connect as a role that is granted one part."""
    roles: list[sql.Identifier] = []
    where = conninfo(taskq_app)
    with psycopg.connect(where, autocommit=True) as connection:

        def grant(part: str, *actions: str) -> str:
            name = f"taskq_{part}_{uuid.uuid4().hex[:8]}"
            roles.append(sql.Identifier(name))
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(roles[-1]))
            given = sql.Identifier("taskq", f"grant_{part}")
            connection.execute(sql.SQL("SELECT {}(%s, %s)").format(given), [name, list(actions) or None])
            return psycopg.conninfo.make_conninfo(where, user=name)

        yield grant
        for role in roles:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_each_part(taskq_app: App, as_role: Callable[..., str], caplog: pytest.LogCaptureFixture) -> None:
    with App(as_role("inserter")) as inserter:
        inserter.insert("order", id="o")
        inserter.insert_many("square", [3], ids=["s"])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            inserter.signal("approve")
    with App(as_role("producer")) as producer:
        assert producer.signal("approve", "yes")
    with App(as_role("worker")) as worker:

        @worker.task("square", max_concurrency=3)
        def square(n: int, task: taskq.Task) -> int:
            task.report("squaring", progress=0.5)
            return n * n

        @worker.workflow("order")
        def order(ctx: taskq.Context) -> list:
            ctx.step("pay", int)
            return [ctx.wait_for("approved", signal="approve", timeout="1 day"), *ctx.map("all", "square", [1, 2])]

        worker.work(until_idle=True)
    assert column(taskq_app, "o", "result") == ["yes", 1, 4]
    assert column(taskq_app, "s", "result") == 9
    assert "settings and schedules stay as the database has them" in caplog.text


def test_a_wait_of_a_narrowed_worker(taskq_app: App, as_role: Callable[..., str]) -> None:
    """It asks for what has come by the end of its time. What the role may not look at has perhaps come."""
    with App(as_role("worker", "order", "signal")) as worker:

        @worker.workflow("order")
        def order(ctx: taskq.Context, body: str) -> object:
            try:
                return ctx.wait_for("approved", signal=body, timeout="0 seconds")
            except taskq.TimedOut:
                return "timed out"

        taskq_app.signal("came", "yes")
        taskq_app.signal("hidden", "yes", action="other")
        for name in ("came", "never", "hidden"):
            taskq_app.insert("order", name, id=name + " order", max_tries=1)
        worker.work(until_idle=True)
    results = [column(taskq_app, f"{name} order", "result") for name in ("came", "never", "hidden")]
    assert results == ["yes", "timed out", None]
    assert str(column(taskq_app, "hidden order", "status")).startswith("InsufficientPrivilege: ")
    saved = taskq_app.query("SELECT step FROM taskq.steps WHERE task_id = 'hidden order'")
    assert saved == [("approved:until",)]
