"""Returns: what has ended goes back in one call, and what cannot go back holds up nothing else."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from .calls import Calls
from .link import Link, is_limit, is_transient
from .performance import Performance
from .task import Task

log = logging.getLogger("taskq_pg")

# For how long a call waits for a lock. Another session may have locked a task in a transaction that it leaves open.
_PATIENCE = 1.0
_PATIENCE_ALONE = 0.05
_LONGEST_PATIENCE_ALONE = 0.25
_LONGEST_DELAY = 10.0
# A call that meets a limit of the server's, or an internal error, so often is too large, or always meets it.
_TRIES = 5
# So much of JSON goes with one call; PostgreSQL takes no message of a gigabyte.
_MOST_TOGETHER = 200_000_000


class Returns:
    """Gives tasks back over a connection, and takes others in their place."""

    def __init__(self, link: Link, calls: Calls) -> None:
        """Make no call yet."""
        self._link = link
        self.calls = calls
        # Told, not asked for: a cycle of references would keep a worker that was dropped.
        self.is_stopping = False
        self.is_late = False
        """Whether the worker's grace is over: then no lock is waited for a second time."""

    def give(self, batch: Sequence[Performance]) -> tuple[list[Task], list[Performance]]:
        """Return the tasks of the batch; tells which tasks came in their place, and which are to be tried again."""
        tasks: list[Task] = []
        again: list[Performance] = []
        # All groups first: a return of a group that fails is tried alone, and would be in a later group as well.
        for group in list(_groups(batch)):
            tasks += self._give(group, again)
        return tasks, again

    def _give(self, group: Sequence[Performance], again: list[Performance]) -> list[Task]:
        number = 0 if self.is_stopping else sum(not performance.failures for performance in group)
        returns = [performance.returns for performance in group if performance.returns is not None]
        if not returns and not number:
            return []
        patience, calls = _PATIENCE, self.calls
        if group[0].failures:
            patience = min(_PATIENCE_ALONE * group[0].failures, _LONGEST_PATIENCE_ALONE)
        try:
            rows = self._link.call(*calls.give(f"[{','.join(returns)}]", number, patience))
        except psycopg.Error as error:
            if (error.sqlstate or "08")[:2] == "08":
                raise
            if len(group) > 1:
                # The call fails as a whole, and one return may be why: each on its own.
                for performance in group:
                    performance.failures += 1
                return [task for performance in group for task in self._give([performance], again)]
            if not returns:
                if not is_transient(error):
                    raise
                return []
            if self._failed(group[0], error):
                again.append(group[0])
            return []
        self._tell(group)
        completed = {performance.task.id for performance in group if performance.task.completed}
        for task_id, sqlstate in ((row[0], row[-1]) for row in rows if row[-1] is not None):
            # Cancelled, deleted, taken over, or returned by us and only the answer was lost.
            if task_id not in completed:
                log.info("%s: dropped, it is not held any more (%s)", task_id, sqlstate)
        return calls.tasks(row for row in rows if row[-1] is None)

    def _tell(self, group: Sequence[Performance]) -> None:
        """Log how tries have ended; of those that have failed the queue tells when the next is."""
        failed = [performance.task.id for performance in group if performance.failed is not None]
        rows: dict[str, Sequence[Any]] = {}
        if failed:
            try:
                rows = {row[0]: row[1:] for row in self._link.call(*self.calls.tries(failed))}
            except (psycopg.Error, OSError) as error:
                log.info("not told when the next tries are: %s", error)
        for performance in group:
            performance.tell_of_try(rows.get(performance.task.id))

    def _failed(self, performance: Performance, error: psycopg.Error) -> bool:
        """Tell whether the return is to be tried again, which may be another one by then."""
        performance.failures += 1
        task_id = performance.task.id
        # Some internal errors are over the next time, "could not open relation" for one. That of a result which is too
        # large is not.
        internal = error.sqlstate == "XX000" and "invalid memory alloc request size" not in str(error)
        is_limited = internal or is_limit(error)
        if (internal or is_transient(error)) and (not is_limited or performance.failures % _TRIES):
            if self.is_late and error.sqlstate == "55P03":
                log.error("%s: left to its lease, its row is locked: %s", task_id, error)
                return False
            longest = 0.5 if self.is_stopping or is_limited else _LONGEST_DELAY
            delay = min(0.1 * 2 ** min(performance.failures, 10), longest) * random.uniform(0.5, 1.5)  # noqa: S311
            log.warning("%s: no return, again in %.1f s: %s", task_id, delay, error)
            performance.again_at = time.monotonic() + delay
            return True
        if performance.refusals:
            log.error("%s: left to its lease: %s", task_id, error)
            return False
        performance.refused(error)
        return True


def _groups(batch: Sequence[Performance]) -> Iterator[Sequence[Performance]]:
    """Yield together what has not failed yet, unless it is too much for one call, and all else alone."""
    fresh = [performance for performance in batch if not performance.failures]
    if sum(len(performance.returns or "") for performance in fresh) <= _MOST_TOGETHER:
        if fresh:
            yield fresh
    else:
        yield from ([performance] for performance in fresh)
    yield from ([performance] for performance in batch if performance.failures)
