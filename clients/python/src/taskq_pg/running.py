"""A worker in the main thread: the loop of its coroutines, and the signals that stop it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal as signals
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

from . import forks
from .alarm import Alarm
from .performance import Performance
from .threads import Executor
from .worker import Worker

log = logging.getLogger("taskq_pg")

_STOPPING = (signals.SIGTERM, signals.SIGINT)


@contextlib.contextmanager
def stopped_by_signals(worker: Worker) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop the worker, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over, main = threading.Event(), threading.get_ident()

    # Not the loop's own way of handling signals: a coroutine that blocks the loop would delay the stop.
    def stop(number: int, frame: FrameType | None) -> None:
        alarm.ring(number)
        if over.is_set() and _in_coroutine(frame):
            raise asyncio.CancelledError

    def unblock() -> None:
        over.set()
        signals.pthread_kill(main, signals.SIGINT)

    alarm = Alarm(_STOPPING, worker.stop)
    if hasattr(signals, "pthread_kill"):
        worker.unblock = unblock
    try:
        with forks.handled(_STOPPING, stop):
            yield
    finally:
        alarm.end()


def _in_coroutine(frame: FrameType | None) -> bool:
    """Tell whether a handler's coroutine, or a callback, runs in this frame: there an exception breaks nothing else."""
    while frame is not None:
        if frame.f_code in (Performance._perform.__code__, asyncio.Handle._run.__code__):
            return True
        frame = frame.f_back
    return False


def run_in_new_loop(main: Coroutine[Any, Any, Any], close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine as ``asyncio.run`` does, but do not wait for threads of handlers that were given back."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(Executor())
        _complete(loop, main)
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        if rest:
            _complete(loop, asyncio.wait(rest, timeout=2))
        _complete(loop, close())
        _complete(loop, asyncio.wait([loop.create_task(loop.shutdown_asyncgens())], timeout=2))
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _complete(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> None:
    task = loop.create_task(coroutine)
    # Not run_until_complete(), for which a handler that stops the loop is an error.
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            # A task that a handler's coroutine has begun has raised it, and that coroutine is told as well.
            log.error("a task in the loop has raised %s, and the worker goes on", type(error).__name__)
    task.result()
