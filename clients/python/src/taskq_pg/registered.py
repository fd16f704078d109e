"""What a decorator of an app returns: the function as it was, which inserts tasks of its action as well."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack, overload

from .handles import Handle
from .keys import ManyKeys, OneKeys
from .task import Task

if TYPE_CHECKING:
    from .producer import Producer
    from .workflow import AsyncContext, Context

B = TypeVar("B")
R = TypeVar("R")


class Registered(Generic[B, R]):
    """A handler: called, it is its function; ``insert`` inserts a task that it performs."""

    def __init__(self, app: Producer, action: str, function: Callable[..., R]) -> None:
        """Wrap a function."""
        functools.update_wrapper(self, function)
        self.action = action
        self.__wrapped__ = function
        self._app = app

    def __str__(self) -> str:
        """Return the name of the action."""
        return self.action

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function."""
        return self.__wrapped__(*args, **kwargs)

    def insert(self, body: B = None, **keys: Unpack[OneKeys]) -> Handle:  # type: ignore[assignment]
        """Do what ``App.insert`` does."""
        return self._app.insert(self.action, body, **keys)

    def insert_async(
        self,
        body: B = None,  # type: ignore[assignment]
        **keys: Unpack[OneKeys],
    ) -> Coroutine[Any, Any, Handle]:
        """Do what ``App.insert_async`` does."""
        return self._app.insert_async(self.action, body, **keys)

    def insert_many(self, bodies: Iterable[B], **keys: Unpack[ManyKeys]) -> list[Handle]:
        """Do what ``App.insert_many`` does."""
        return self._app.insert_many(self.action, bodies, **keys)

    def insert_many_async(self, bodies: Iterable[B], **keys: Unpack[ManyKeys]) -> Coroutine[Any, Any, list[Handle]]:
        """Do what ``App.insert_many_async`` does."""
        return self._app.insert_many_async(self.action, bodies, **keys)


class RegisterTask(Protocol):
    """A decorator of handlers, which knows the body by the annotation."""

    @overload
    def __call__(self, function: Callable[[B, Task], R], /) -> Registered[B, R]: ...
    @overload
    def __call__(self, function: Callable[[B], R], /) -> Registered[B, R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Registered[Any, R]: ...


class RegisterWorkflow(Protocol):
    """A decorator of workflows, which knows the body by the annotation."""

    @overload
    def __call__(self, function: Callable[[Context, B], R], /) -> Registered[B, R]: ...
    @overload
    def __call__(self, function: Callable[[AsyncContext, B], R], /) -> Registered[B, R]: ...
    @overload
    def __call__(self, function: Callable[..., R], /) -> Registered[Any, R]: ...
