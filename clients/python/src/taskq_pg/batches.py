"""Batches: tasks that were granted together, performed by one call of their handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from . import forks
from .driven import now
from .errors import Reject
from .performance import Performance

_running: set[asyncio.Task[None]] = set()


class Batch:
    """Some performances of one handler. Each has a lease and an end of its own."""

    def __init__(self, performances: Sequence[Performance]) -> None:
        """Begin nothing yet."""
        self._all = performances

    def keep(self, running: asyncio.Task[None]) -> None:
        """Keep the coroutine, of which the loop has a weak reference only, until it has ended."""
        _running.add(running)
        running.add_done_callback(_running.discard)

    def run(self) -> None:
        """Call the handler in this thread."""
        now(self._run(False))

    async def run_async(self) -> None:
        """Await the handler on the loop."""
        await self._run(True)

    async def _run(self, in_loop: bool) -> None:
        if begun := self._begin():
            value, error = None, None
            try:
                value = begun[0].handler.function([one.task for one in begun])
                if inspect.isawaitable(value):
                    value = await value if in_loop else begun[0].wait_for(value)
            except BaseException as raised:
                value, error = None, raised
            self._end(begun, value, error)

    def _begin(self) -> list[Performance]:
        """Return those that can begin."""
        begun = []
        for one in self._all:
            if one.task.unreadable is not None:
                one.conclude(None, Reject(f"what the queue has of it cannot be read: {one.task.unreadable}"))
            elif one.is_too_late():
                one.finish(None)
            else:
                begun.append(one)
        return begun

    @staticmethod
    def _end(begun: Sequence[Performance], value: Any, error: BaseException | None) -> None:
        forks.end_child(begun[0].process, error)
        results: Mapping[str, Any] | None = None
        if isinstance(value, Mapping):
            results = value
        elif error is None and value is not None:
            if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == len(begun):
                results = {one.task.id: result for one, result in zip(begun, value, strict=True)}
            else:
                error = TypeError(f"a batch of {len(begun)} returns so many results, or a dict of them by id")
        for one in begun:
            result, problem = None, error
            if error is None and results is not None:
                if one.task.id in results:
                    result = results[one.task.id]
                else:
                    problem = LookupError("the batch has returned nothing for this task")
            if isinstance(result, BaseException):
                result, problem = None, result
            one.conclude(result, problem)
