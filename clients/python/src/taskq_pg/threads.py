"""Threads for handlers that are plain functions, and for what coroutines do in threads.

Not those of ``concurrent.futures``: the interpreter waits for these when it ends, and a worker that stops must not
wait for a handler whose task it has given back.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class Threads:
    """Runs functions in threads, made when first needed; at most ``number`` of them."""

    def __init__(self, number: int) -> None:
        """Start none yet."""
        self._number = number
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._pending = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Run the job in a thread. It must not raise."""
        with self._lock:
            self._pending += 1
            # A thread that is just ending its job counts as busy: rather one thread too many than a job that waits.
            if self._pending > len(self._threads) < self._number:
                thread = threading.Thread(target=self._run, name=f"taskq handler {len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._jobs.put(job)

    def allow_another(self) -> None:
        """Take note that the job of one thread is given up, whose place another takes."""
        with self._lock:
            self._number += 1

    def close(self) -> None:
        """End each thread when its job, if it has one, is done."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._pending -= 1


class Executor(ThreadPoolExecutor):
    """What ``asyncio.to_thread`` uses in a worker's loop. A pool by name, since the loop takes nothing else."""

    def __init__(self) -> None:
        """Start no thread yet."""
        super().__init__()
        self._own = Threads(min(32, (os.cpu_count() or 1) + 4))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call the function in a thread."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._own.submit(run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End each thread when its call is over, and wait for none."""
        self._own.close()


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function in a thread of its own, in the caller's context, and return what it returns."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T, where there is no error

    def run() -> None:
        result, error = None, None
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as raised:
            error = raised if not isinstance(raised, StopIteration) else RuntimeError(f"raised {raised!r}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="taskq step", daemon=True).start()
    return await future
