"""Stopping in each state: nothing is lost, and no try is used up."""

import asyncio
import os
import signal
import threading
import time

import pytest

import taskq_pg as taskq
from conftest import Server, column, conninfo, process, state, until, working
from taskq_pg import App


def begun(app: App, task_id: str) -> bool:
    """Whether its handler runs: what is granted in the moment of the stop is given back at once."""
    return (state(app, task_id), column(app, task_id, "status")) == ("in-progress", "begun")


def waits(app: App) -> bool:
    """Whether a claim sleeps in the server."""
    query = """SELECT FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
                  AND pid <> pg_backend_pid() AND position('taskq.own_tasks' IN query) > 0"""
    return len(app.query(query)) == 1


def claims(app: App) -> int:
    """The process of the server in which a claim sleeps."""
    query = "SELECT pid FROM pg_stat_activity WHERE position('taskq.own_tasks' IN query) > 0 AND state = 'active'"
    [[backend]] = app.query(query + " AND datname = current_database() AND pid <> pg_backend_pid()")
    return backend


def freeze(backend: int) -> None:
    try:
        os.kill(backend, signal.SIGSTOP)
    except PermissionError:
        pytest.skip("the server's processes belong to another user")


def given_back(app: App, task_id: str) -> bool:
    """Whether it can be owned again, and no try was counted."""
    return (state(app, task_id), column(app, task_id, "num_tries")) == ("ready", 0)


def test_idle(taskq_app: App) -> None:
    with process(taskq_app) as worker:
        until(lambda: waits(taskq_app))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_sigint(taskq_app: App) -> None:
    with process(taskq_app) as worker:
        until(lambda: waits(taskq_app))
        worker.send_signal(signal.SIGINT)
        assert worker.wait(60) == 0


@pytest.mark.parametrize("action", ["sleep", "asleep", "block"])
def test_a_handler_that_ends_within_the_grace(taskq_app: App, action: str) -> None:
    taskq_app.insert(action, 2, id="s", max_tries=1)
    taskq_app.insert("noop", id="next", depends_on=["s"])
    with process(taskq_app, "--grace", "1 minute", "--concurrency", "1") as worker:
        until(lambda: begun(taskq_app, "s"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert state(taskq_app, "s") == "completed"
    assert state(taskq_app, "next") == "ready", "it claims no more"


@pytest.mark.parametrize("action", ["sleep", "asleep", "block", "in thread"])
def test_a_handler_that_does_not(taskq_app: App, action: str) -> None:
    taskq_app.insert(action, 600, id="s", max_tries=1)
    with process(taskq_app, "--grace", "0.2 seconds") as worker:
        until(lambda: begun(taskq_app, "s"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0, "also where a coroutine blocks the loop"
        until(lambda: given_back(taskq_app, "s"))
    assert column(taskq_app, "s", "status") == "given back by a worker that stops"
    assert column(taskq_app, "s", "num_releases") == 1


@pytest.mark.parametrize("action", ["sleep", "asleep", "block"])
def test_a_second_signal_ends_at_once(taskq_app: App, action: str) -> None:
    taskq_app.insert(action, 600, id="s", max_tries=1)
    with process(taskq_app, "--grace", "1 hour") as worker:
        until(lambda: begun(taskq_app, "s"))
        worker.send_signal(signal.SIGTERM)
        until(lambda: not waits(taskq_app))
        assert worker.poll() is None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    assert given_back(taskq_app, "s")


def test_a_coroutine_in_c_code(taskq_app: App) -> None:
    """The task goes back; the process ends with the call, which nothing can end."""
    taskq_app.insert("compute", 2**31 - 1, id="s", max_tries=1)
    with process(taskq_app, "--grace", "0.2 seconds") as worker:
        until(lambda: begun(taskq_app, "s"))
        worker.send_signal(signal.SIGTERM)
        until(lambda: given_back(taskq_app, "s"))


def test_a_forked_process_is_no_worker(taskq_app: App) -> None:
    """Its signals are its own: one ends it as any process, and the worker goes on."""
    taskq_app.insert("fork", id="f")
    with process(taskq_app) as worker:
        until(lambda: state(taskq_app, "f") == "completed")
        assert column(taskq_app, "f", "result") == [-signal.SIGTERM] * 2
        taskq_app.insert("noop", id="n")
        until(lambda: state(taskq_app, "n") == "completed")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_while_the_server_is_away(own_app: App, server: Server) -> None:
    own_app.insert("asleep", 600, id="s", max_tries=1)
    with process(own_app, "--grace", "0.2 seconds") as worker:
        until(lambda: begun(own_app, "s"))
        own_app.close()
        server.call("stop")
        try:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
        finally:
            server.call("restart")
    assert state(own_app, "s") == "in-progress", "it is left to its lease"


def test_before_the_server_is_there(own_app: App, server: Server) -> None:
    own_app.insert("noop", id="n")
    where = conninfo(own_app)
    own_app.close()
    server.call("stop")
    try:
        with process(where) as stopped, process(where) as waiting:
            stopped.send_signal(signal.SIGTERM)
            stopped.wait(60)
            server.call("restart")
            until(lambda: state(own_app, "n") == "completed")
            assert waiting.poll() is None
    finally:
        server.call("start", "-c", "fsync=off")


def test_a_worker_that_is_killed(taskq_app: App) -> None:
    taskq_app.insert_many("sleep", [600] * 3, ids=["1", "2", "3"])
    with process(taskq_app, TEST_LEASE="1 second") as worker:
        until(lambda: all(begun(taskq_app, i) for i in "123"))
        worker.kill()
    taken = []
    taskq_app.task("sleep")(lambda body, task: taken.append((task.id, task.num_tries)))
    with working(taskq_app):
        until(lambda: len(taken) == 3)
    assert sorted(taken) == [("1", 2), ("2", 2), ("3", 2)]


def test_handlers_may_hear_of_the_stop(taskq_app: App) -> None:
    begun = threading.Event()

    @taskq_app.task("long")
    def long(body: None, task: taskq.Task) -> None:
        begun.set()
        task.stopping.wait()
        task.report(checkpoint={"line": 40})
        raise taskq.Retry("goes on elsewhere", count_try=False)

    taskq_app.insert("long", id="l")
    with working(taskq_app):
        begun.wait()
    assert given_back(taskq_app, "l")
    assert column(taskq_app, "l", "status") == "goes on elsewhere"


def test_a_server_that_does_not_answer(taskq_app: App) -> None:
    with process(taskq_app) as worker:
        until(lambda: waits(taskq_app))
        backend = claims(taskq_app)
        freeze(backend)
        try:
            worker.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(15) == 0
        finally:
            os.kill(backend, signal.SIGCONT)


def test_handlers_hear_of_the_stop_beside_a_claim_that_does_not_end(
    taskq_app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace begins with the stop, too: what has not ended goes back while the server of the claim is silent."""
    # For so long the claim is waited for, so that its end is not what the handler hears.
    monkeypatch.setattr("taskq_pg.worker._LAST_RETURNS", 60.0)
    heard, release = threading.Event(), threading.Event()

    @taskq_app.task("long", max_tries=1)
    def long(body: None, task: taskq.Task) -> None:
        task.report("begun")
        task.stopping.wait()
        heard.set()
        release.wait()

    taskq_app.insert("long", id="l")
    with working(taskq_app, grace="2 seconds"):
        until(lambda: begun(taskq_app, "l") and waits(taskq_app))
        backend = claims(taskq_app)
        freeze(backend)
        try:
            taskq_app.stop()
            until(heard.is_set, 30)
            until(lambda: given_back(taskq_app, "l"), 30)
        finally:
            os.kill(backend, signal.SIGCONT)
            release.set()


def test_a_coroutine_that_does_not_let_itself_be_cancelled(taskq_app: App) -> None:
    begun = threading.Event()
    release = threading.Event()

    @taskq_app.task("stubborn")
    async def stubborn() -> None:
        begun.set()
        while not release.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass

    taskq_app.insert("stubborn", id="s")
    with working(taskq_app, grace="0.1 seconds"):
        begun.wait()
        taskq_app.stop()
        until(lambda: given_back(taskq_app, "s"))
        release.set()
    assert given_back(taskq_app, "s"), "its late end changes nothing"


def test_stopping_again_and_again_loses_nothing(taskq_app: App) -> None:
    """Workers stop at any moment, also in that of a claim; each task is performed, with its first try."""
    done = []
    taskq_app.task("noop")(lambda n: done.append(n))
    taskq_app.insert_many("noop", range(1000), max_tries=1)
    while len(done) < 1000:
        with working(taskq_app, concurrency=20):
            before = len(done)
            until(lambda: len(done) > before or len(done) == 1000)
    assert sorted(done) == list(range(1000))
    assert taskq_app.query("SELECT state, count FROM taskq.count_tasks()") == [("completed", 1000)]


def test_a_stop_before_the_loop_has_begun(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    taskq_app.task("noop")(lambda: None)
    new_loop = asyncio.new_event_loop

    def stop_first() -> asyncio.AbstractEventLoop:
        assert taskq_app.stop() == 1
        return new_loop()

    monkeypatch.setattr(asyncio, "new_event_loop", stop_first)
    assert taskq_app.stop() == 0
    taskq_app.work()
    assert taskq_app.stop() == 0


def test_a_stop_before_the_loop_comes_to_it(taskq_app: App) -> None:
    taskq_app.task("noop")(lambda: None)

    async def main() -> None:
        working = asyncio.create_task(taskq_app.work_async())
        taskq_app.stop()
        await working

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["cancelled", "never awaited", "inside of a loop"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_that_has_never_begun_is_not_told(taskq_app: App, kind: str) -> None:
    taskq_app.task("noop")(lambda: None)

    async def main() -> None:
        if kind == "cancelled":
            working = asyncio.create_task(taskq_app.work_async())
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        elif kind == "never awaited":
            taskq_app.work_async()
        else:
            with pytest.raises(RuntimeError):
                taskq_app.work()
        assert taskq_app.stop() == 0

    asyncio.run(main())
    assert taskq_app.stop() == 0
