"""Threads for handlers that are plain functions.

Not those of ``concurrent.futures``: the interpreter waits for these when it ends, and a worker that stops must not
wait for a handler whose task it has given back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Threads:
    """Runs functions in threads, made when first needed; at most ``number`` of them."""

    def __init__(self, number: int) -> None:
        """Start none yet."""
        self._number = number
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, job: Callable[[], None]) -> None:
        """Run the job in a thread. It must not raise. Called by one thread at a time."""
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._number:
            thread = threading.Thread(target=self._run, name=f"taskq handler {len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def close(self) -> None:
        """End each thread when its job, if it has one, is done."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            self._idle.release()
