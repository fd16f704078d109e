"""Workers are killed at random moments, and each step's effect is there exactly once."""

import os
import random
import signal
import time

import pytest

from conftest import column, process, until
from taskq_pg import App

# How often the workflow of twenty steps is killed.
KILLS = int(os.environ.get("TASKQ_TEST_KILLS", "200"))


def effects(app: App) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, step in app.query("SELECT run, step FROM effects ORDER BY run, step"):
        found.setdefault(name, []).append(step)
    return found


BOOKED = [1, 2, 3, 4, 5, 11, 12, 13, 14, 15, 16, 17, 19, 20]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_two_hundred_times(taskq_app: App) -> None:
    kill(taskq_app, KILLS)


@pytest.mark.timeout(600)
def test_killed_a_few_times(taskq_app: App) -> None:
    kill(taskq_app, min(KILLS, 8))


def kill(app: App, number: int) -> None:
    """Kill workers at random moments, in which they do the steps of two workflows."""
    with app.connections.use() as connection:
        connection.execute("CREATE TABLE effects (run text, step int)")
    kills, round_ = 0, 0
    while kills < number:
        round_ += 1
        runs = {f"{round_} {action}": action for action in ("order", "order async")}
        for name, action in runs.items():
            app.insert(action, name, id=name, max_tries=1000)
            app.signal(f"approve {name}", name)
        # One process at a time; when it is killed depends on chance, not on what it does.
        while unsettled(app, list(runs)) and kills < number:
            with process(app, "--concurrency", "3", "--log-level", "error", module="orders:app") as worker:
                until(lambda: holds(app) or not unsettled(app, list(runs)))
                time.sleep(random.uniform(0, 0.25))
                worker.send_signal(signal.SIGKILL)
                kills += 1
        with process(app, "--log-level", "error", module="orders:app"):
            until(lambda: not unsettled(app, list(runs)), 300)
        for name in runs:
            assert effects(app)[name] == BOOKED
            assert column(app, name, "result") == {
                "done": [*range(1, 11), 19, 20],
                "parts": [11, 12, 13, 14, 15],
                "one": 16,
                "approval": name,
            }
    assert app.query("SELECT * FROM taskq.check()") == []


def unsettled(app: App, ids: list[str]) -> bool:
    query = "SELECT FROM taskq.tasks WHERE id = ANY(%s) AND status_code NOT IN ('completed', 'aborted')"
    return bool(app.query(query, [ids]))


def holds(app: App) -> bool:
    return bool(app.query("SELECT FROM taskq.actors WHERE NOT overdue"))
