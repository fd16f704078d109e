"""More steps, or results, than a grant has room for: they are read from the views, and never taken for nothing."""

from typing import Any

import pytest

import taskq_pg as taskq
from conftest import column, state
from taskq_pg import App
from taskq_pg.calls import Calls
from taskq_pg.testing import drain


@pytest.fixture(params=["a grant without room", pytest.param("a large grant", marks=pytest.mark.long)])
def value(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is saved five times: too much for a grant, or as though it were."""
    if request.param == "a large grant":
        return "to_jsonb(repeat('x', 45000000))"
    make = Calls._task
    monkeypatch.setattr(Calls, "_task", lambda self, *columns: make(self, *columns[:-2], None, None))
    return "to_jsonb(repeat('x', 45))"


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_what_is_saved_is_not_done_again(taskq_app: App, value: str, kind: str) -> None:
    done: list[int] = []

    if kind == "function":

        @taskq_app.workflow("w")
        def workflow(ctx: taskq.Context) -> list[Any]:
            paid = ctx.step("pay", done.append, 1)
            with ctx.transaction("book") as statements:
                statements.execute("INSERT INTO booked VALUES (1)")
            return [paid, len(ctx.step("large 4", done.append, 2) or "")]
    else:

        @taskq_app.workflow("w")
        async def coroutine(ctx: taskq.AsyncContext) -> list[Any]:
            paid = await ctx.step("pay", done.append, 1)
            async with ctx.transaction("book") as statements:
                await statements.execute("INSERT INTO booked VALUES (1)")
            return [paid, len(await ctx.step("large 4", done.append, 2) or "")]

    with taskq_app.connections.use() as connection:
        connection.execute("CREATE TABLE booked (n int)")
        taskq_app.insert("w", id="w")
        [token] = connection.execute("SELECT token FROM taskq.own_tasks('a', 1, '{w}')").fetchone()
        for step in ("pay", "book", *(f"large {n}" for n in range(5))):
            saved = "to_jsonb(7)" if step in ("pay", "book") else value
            connection.execute(f"SELECT 1 FROM taskq.save_step('w', %s, %s, {saved})", [token, step])
        connection.execute("SELECT taskq.return_task('w', %s, 'pending', depends_on => '[]')", [token])
    drain(taskq_app)
    assert state(taskq_app, "w") == "completed"
    assert column(taskq_app, "w", "result") == [7, 45000000 if "000" in value else 45]
    assert (done, taskq_app.query("SELECT * FROM booked")) == ([], [])


def test_results_are_read_where_they_are(taskq_app: App, value: str) -> None:
    ids = [str(n) for n in range(5)]
    entries: list[None] = []

    @taskq_app.task("sum", results=True)
    async def count(body: None, task: taskq.Task) -> int:
        return sum(len(result.result) for result in task.results)

    @taskq_app.workflow("wait")
    def wait(ctx: taskq.Context) -> int:
        entries.append(None)
        assert len(entries) < 3, "it is entered again and again"
        return sum(map(len, ctx.wait_for("all", tasks=ids)))

    taskq_app.insert_many("large", [None] * 5, ids=ids)
    taskq_app.insert("sum", id="s", depends_on=ids)
    taskq_app.insert("wait", id="w", depends_on=ids)
    for _ in ids:
        taskq_app.query(f"""SELECT taskq.return_task(task_id, token, result => {value})
                              FROM taskq.own_tasks('a', 1, '{{large}}')""")
    drain(taskq_app)
    length = 45000000 if "000" in value else 45
    assert [column(taskq_app, name, "result") for name in "sw"] == [5 * length] * 2
    assert len(entries) == 1
