"""Traces and metrics by OpenTelemetry, where its API is installed; else nothing.

The context of the inserting side travels in the task's metadata, as ``traceparent`` and ``tracestate``. A performance
is a consumer span by the semantic conventions of messaging: the first try is a child of the inserting span, a later
one is linked to it, since hours may lie between.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from opentelemetry import metrics, propagate, trace

else:
    try:
        from opentelemetry import metrics, propagate, trace
    except ImportError:
        trace = None

_INSTALLED = trace is not None
_KEYS = ("traceparent", "tracestate")


class Traced(Protocol):
    """What of a task goes into its span."""

    id: str
    action: str
    num_tries: int
    metadata: dict[str, Any] | None


class Performed:
    """The span of a performance; this one records nothing."""

    def ended(self, outcome: Mapping[str, Any] | None, error: BaseException | None) -> None:
        """Record how the performance ended."""


def inject(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the metadata with the context of the current span, if there is one."""
    if not _INSTALLED or not trace.get_current_span().get_span_context().is_valid:
        return None if metadata is None else dict(metadata)
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    found = {key: carrier[key] for key in _KEYS if key in carrier}
    return {**found, **(metadata or {})} or None


@contextmanager
def performance(task: Traced) -> Iterator[Performed]:
    """Open the span of a performance."""
    if not _INSTALLED:
        yield Performed()
        return
    carrier = {key: value for key, value in (task.metadata or {}).items() if key in _KEYS and isinstance(value, str)}
    origin = propagate.extract(carrier)
    remote = trace.get_current_span(origin).get_span_context()
    later = task.num_tries > 1
    with _tracer().start_as_current_span(
        f"process {task.action}",
        # A root of its own for a later try, whatever span the worker was started in.
        context=trace.set_span_in_context(trace.INVALID_SPAN) if later else origin,
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(remote)] if later and remote.is_valid else None,
        attributes={
            "messaging.system": "taskq",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": task.action,
            "messaging.message.id": task.id,
            "taskq.num_tries": task.num_tries,
        },
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield _Recorded(span, task.action)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Open the span of a step of a workflow."""
    if not _INSTALLED:
        yield
        return
    with _tracer().start_as_current_span(f"step {name}", attributes={"taskq.step": name}):
        yield


class _Recorded(Performed):
    def __init__(self, span: trace.Span, action: str) -> None:
        self._span = span
        self._action = action
        self._began = time.perf_counter()

    def ended(self, outcome: Mapping[str, Any] | None, error: BaseException | None) -> None:
        name = _name(outcome)
        self._span.set_attribute("taskq.outcome", name)
        if error is not None:
            self._span.record_exception(_printable(error))
            self._span.set_attribute("error.type", type(error).__qualname__)
            self._span.set_status(trace.StatusCode.ERROR)
        attributes = {
            "messaging.system": "taskq",
            "messaging.destination.name": self._action,
            "taskq.outcome": name,
        }
        performances, duration = _instruments()
        performances.add(1, attributes)
        duration.record(time.perf_counter() - self._began, attributes)


def _printable(error: BaseException) -> Exception:
    try:
        str(error)
    except BaseException:
        return RuntimeError(f"a {type(error).__name__} that cannot be shown")
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")


def _name(outcome: Mapping[str, Any] | None) -> str:
    if outcome is None:
        return "left"
    if "depends_on" in outcome:
        return "suspended"
    if outcome.get("count_try") is False:
        return "released"
    return "failed" if outcome["status_code"] == "pending" else str(outcome["status_code"])


def _tracer() -> trace.Tracer:
    return trace.get_tracer("taskq_pg")


@functools.cache
def _instruments() -> tuple[metrics.Counter, metrics.Histogram]:
    meter = metrics.get_meter("taskq_pg")
    return (
        meter.create_counter("taskq.performances", description="Performances of tasks"),
        meter.create_histogram("messaging.process.duration", unit="s", description="Duration of performances"),
    )
