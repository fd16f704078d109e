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
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@app.task("asleep")
async def asleep(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


@app.task("block")
async def block(seconds: float) -> str:
    time.sleep(seconds)  # what no coroutine should do
    return "blocked"
