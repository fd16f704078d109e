"""Tasks that were granted together, and are performed by one call."""

from typing import Any

import pytest

import taskq_pg as taskq
from conftest import column, state, until, working
from taskq_pg import App


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_one_call_for_many(taskq_app: App, kind: str) -> None:
    sizes: list[int] = []

    def index(tasks: list[taskq.Task]) -> list[int]:
        sizes.append(len(tasks))
        return [task.body * 2 for task in tasks]

    if kind == "function":
        taskq_app.batch("index", size=4)(index)
    else:

        @taskq_app.batch("index", size=4)
        async def index_async(tasks: list[taskq.Task]) -> list[int]:
            return index(tasks)

    ids = taskq_app.insert_many("index", range(20))
    taskq_app.work(until_idle=True, concurrency=10)
    assert [column(taskq_app, task_id, "result") for task_id in ids] == [2 * n for n in range(20)]
    assert max(sizes) == 4
    assert len(sizes) < 15


def test_each_task_has_an_end_of_its_own(taskq_app: App) -> None:
    @taskq_app.batch("index")
    def index(tasks: list[taskq.Task]) -> dict[str, Any]:
        return {
            "fine": 1,
            "rejected": taskq.Reject("no"),
            "failed": ValueError("bad"),
            "more": taskq.Complete(2, status="well"),
        }

    for name in ("fine", "rejected", "failed", "more", "missing"):
        taskq_app.insert("index", id=name)
    taskq_app.work(until_idle=True)
    ends = {n: (state(taskq_app, n), column(taskq_app, n, "status")) for n in ("rejected", "failed", "more", "missing")}
    assert ends == {
        "rejected": ("aborted", "no"),
        "failed": ("scheduled", "ValueError: bad"),
        "more": ("completed", "well"),
        "missing": ("scheduled", "LookupError: the batch has returned nothing for this task"),
    }
    assert column(taskq_app, "fine", "result") == 1


@pytest.mark.parametrize("returns", [[1], "ab", 5, OSError("all")])
def test_a_batch_that_fails_fails_all(taskq_app: App, returns: Any) -> None:
    @taskq_app.batch("index")
    def index(tasks: list[taskq.Task]) -> Any:
        if isinstance(returns, Exception):
            raise returns
        return returns

    ids = taskq_app.insert_many("index", [1, 2])
    taskq_app.work(until_idle=True)
    assert [state(taskq_app, task_id) for task_id in ids] == ["scheduled"] * 2


def test_a_batch_in_which_one_is_cancelled(taskq_app: App) -> None:
    @taskq_app.batch("index")
    def index(tasks: list[taskq.Task]) -> list[str]:
        [cancelled] = [task for task in tasks if task.id == "c"]
        taskq_app.cancel("c")
        cancelled.lost.wait()
        return ["done"] * len(tasks)

    taskq_app.insert_tasks([{"id": "c", "action": "index"}, {"id": "d", "action": "index"}])
    with working(taskq_app):
        until(lambda: state(taskq_app, "d") == "completed")
    assert column(taskq_app, "c", "status") == "cancelled"
