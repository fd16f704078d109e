"""Handlers of worker processes of the tests."""

import asyncio
import hashlib
import multiprocessing.connection
import os
import time

import taskq_pg as taskq

app = taskq.App(lease=os.environ.get("TEST_LEASE", "1 minute"))


@app.task("noop")
def noop() -> None:
    pass


@app.task("sleep")
def sleep(seconds: float, task: taskq.Task) -> str:
    task.report("begun")
    time.sleep(seconds)
    return "slept"


@app.task("asleep")
async def asleep(seconds: float, task: taskq.Task) -> str:
    await task.report_async("begun")
    await asyncio.sleep(seconds)
    return "slept"


@app.task("block")
async def block(seconds: float, task: taskq.Task) -> str:
    await task.report_async("begun")
    time.sleep(seconds)  # what no coroutine should do
    return "blocked"


@app.task("in thread")
async def in_thread(seconds: float, task: taskq.Task) -> None:
    await task.report_async("begun")
    await asyncio.to_thread(time.sleep, seconds)


@app.task("compute")
async def compute(rounds: int, task: taskq.Task) -> None:
    await task.report_async("begun")
    hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)  # C code, in which Python calls no handler of a signal


def signalled(connection: multiprocessing.connection.Connection) -> None:
    connection.send("begun")
    time.sleep(600)


@app.task("fork")
def fork(body: None) -> list[int | None]:
    """End forked processes; returns how they have ended."""
    forks = multiprocessing.get_context("fork")
    here, there = forks.Pipe()
    at_once, begun = (forks.Process(target=signalled, args=(there,)) for _ in range(2))
    at_once.start()
    at_once.terminate()
    at_once.join()
    begun.start()
    here.recv()
    begun.terminate()
    begun.join()
    return [at_once.exitcode, begun.exitcode]
