"""So many at once and no more: threads and coroutines of any loop queue for the same places."""

from __future__ import annotations

import asyncio
import collections
import threading
from concurrent.futures import Future


class Slots:
    """A number of places. Who comes first is served first."""

    def __init__(self, number: int) -> None:
        """Begin with all places free."""
        self.number = number
        self._free = number
        self._lock = threading.Lock()
        self._queue: collections.deque[Future[None]] = collections.deque()

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self.number - self._free

    def take(self, patience: float) -> None:
        """Take a place; ``TimeoutError`` if none is free in so many seconds."""
        place = self._ask()
        try:
            place.result(patience)
        except BaseException:
            self._leave(place)
            raise

    async def take_async(self, patience: float) -> None:
        """Take a place, in a coroutine."""
        place = self._ask()
        if place.done():
            return
        try:
            await asyncio.wait_for(asyncio.wrap_future(place), patience)
        except BaseException:
            self._leave(place)
            raise

    def give(self) -> None:
        """Give a place back: it is that of the next in the queue."""
        with self._lock:
            while self._queue:
                place = self._queue.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1

    def _ask(self) -> Future[None]:
        place: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                place.set_result(None)
            else:
                self._queue.append(place)
        return place

    def _leave(self, place: Future[None]) -> None:
        # It may have been given in the last moment. What gives one holds the lock.
        with self._lock:
            given = not place.cancel() and not place.cancelled()
        if given:
            self.give()
