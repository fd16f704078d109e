"""Handlers of worker processes of the tests."""

import asyncio
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
