"""The threads of handlers."""

import asyncio
import threading

import pytest

from taskq_pg.threads import Threads, in_thread


def test_as_many_at_once_as_there_may_be() -> None:
    """Also when threads have been used before: each job waits for all others to have begun."""
    threads = Threads(5)
    for _ in range(200):
        barrier = threading.Barrier(6)
        for _ in range(5):
            threads.submit(lambda: barrier.wait(30) and None)
        barrier.wait(30)
    threads.close()


def test_a_function_in_a_thread() -> None:
    def fail() -> None:
        raise LookupError("of the thread")

    def stop() -> None:
        raise StopIteration

    async def main() -> None:
        assert await in_thread(lambda a, b: (a, b, threading.current_thread().daemon), 1, b=2) == (1, 2, True)
        with pytest.raises(LookupError, match="of the thread"):
            await in_thread(fail)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await in_thread(stop)
        release = threading.Event()
        waiting = asyncio.create_task(in_thread(release.wait))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        release.set()

    asyncio.run(main())
