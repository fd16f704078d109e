"""The calls that give tasks back."""

import json
from collections import Counter
from types import SimpleNamespace

import psycopg

from taskq_pg.returns import Returns


def test_each_return_of_a_group_that_failed_is_sent_once_more() -> None:
    """A second one would count as a failure of its own, or be refused, though the first has ended the task."""
    sent: list[list[int]] = []
    told: list[None] = []

    class Link:
        def call(self, returns: str, _: object) -> list:
            sent.append(json.loads(returns))
            if len(sent[-1]) > 1 or sent[-1] == [0]:
                raise psycopg.errors.LockNotAvailable("locked")
            return []

    calls = SimpleNamespace(give=lambda returns, *_: (returns, None), tasks=list)
    group = [
        SimpleNamespace(
            returns=str(n),
            failures=0,
            refusals=0,
            again_at=0.0,
            failed=None,
            tell_of_try=told.append,
            task=SimpleNamespace(id=str(n), completed=False),
        )
        for n in range(4)
    ]
    _, again = Returns(Link(), calls).give(group)
    assert Counter(map(tuple, sent)) == Counter([(0, 1, 2, 3), (0,), (1,), (2,), (3,)])
    assert again == [group[0]]
    assert told == [None] * 3
