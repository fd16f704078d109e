"""A handler: a function, what it wants as its arguments, and the lease of its tasks."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .bodies import is_pydantic, read_body
from .durations import Duration, seconds
from .errors import BodyError, Reject
from .task import Task

if TYPE_CHECKING:
    from .workflow import AsyncContext, Context


class Handler:
    """What performs the tasks of an action."""

    def __init__(
        self,
        action: str,
        function: Callable[..., Any],
        *,
        lease: Duration,
        results: bool = False,
        workflow: bool = False,
        batch: int = 0,
        abort_on: type[Exception] | tuple[type[Exception], ...] = (),
        settings: Mapping[str, Any] | None = None,
        arounds: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Look at the function's arguments; ``settings`` are those of ``taskq.set_action``."""
        self.action = action
        self.function = function
        self.lease = seconds(lease)
        if self.lease <= 0:
            raise ValueError(f'the lease of "{action}" is not positive')
        self.workflow = workflow
        self.results = results or workflow
        self.batch = batch
        """How many tasks one call takes at most; 0 if it takes one that is no list."""
        self.abort_on = abort_on
        self.arounds = arounds
        """What the program has put around each performance, the outermost first; it may grow."""
        self.settings = dict(settings or {})
        # What is called decides where it is called, and what a decorator has wrapped, which context it takes.
        self.is_async = _is_async(function)
        self.wants_async = _is_async(inspect.unwrap(function))
        self._plan = [] if batch else self._arguments()

    def __call__(self, task: Task, context: Context | AsyncContext | None = None) -> Any:
        """Call the function with what it takes. A body that does not fit its annotation is a ``Reject``."""
        given: list[Any] = []
        for kind, annotation in self._plan:
            if kind == "task":
                given.append(task)
            elif kind == "context":
                given.append(context)
            else:
                try:
                    given.append(read_body(task.text, annotation))
                except BodyError as error:
                    raise Reject(str(error)) from error
        return self.function(*given)

    def check(self, text: str | None) -> None:
        """Raise ``BodyError`` if the handler takes a model of pydantic, and the body is none."""
        for kind, annotation in self._plan:
            if kind == "body" and is_pydantic(annotation):
                read_body(text, annotation)

    def _arguments(self) -> list[tuple[str, Any]]:
        """Tell for each parameter what it gets: the context of a workflow, the task, or the body."""
        annotations = _annotations(self.function)
        plan: list[tuple[str, Any]] = []
        for parameter in inspect.signature(self.function).parameters.values():
            annotation = annotations.get(parameter.name, Any)
            taken = [kind for kind, _ in plan]
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                if self.workflow and not plan:
                    plan.append(("context", None))
                    continue
                if annotation is Task or (parameter.name == "task" and annotation is Any):
                    plan.append(("task", None))
                    continue
                if "body" not in taken:
                    plan.append(("body", annotation))
                    continue
            if parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                wanted = "(ctx, body)" if self.workflow else "(body, task)"
                raise TypeError(f'the handler of "{self.action}" takes {parameter.name!r}, and is called with {wanted}')
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                break  # an argument with a default, and so are all behind it
        if self.workflow and not plan:
            raise TypeError(f'the workflow "{self.action}" takes no argument; its first is the context')
        return plan


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  # an object whose call is a coroutine function
    )


def _annotations(function: Any) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    return typing.get_type_hints(function, include_extras=True)
