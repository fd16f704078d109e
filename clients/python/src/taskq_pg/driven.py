"""One text for functions and for coroutines: written as a coroutine, and driven at once where nothing in it waits."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing: what it awaits are calls of plain functions."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waits")


@contextmanager
def entered(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter and leave a context manager whose coroutines wait for nothing."""
    value = now(manager.__aenter__())
    try:
        yield value
    except BaseException:
        if not now(manager.__aexit__(*sys.exc_info())):
            raise
    else:
        now(manager.__aexit__(None, None, None))
