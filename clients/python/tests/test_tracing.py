"""Spans and metrics, with the in-memory exporters of OpenTelemetry's SDK."""

from collections.abc import Iterator

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import taskq_pg as taskq
from taskq_pg import App
from taskq_pg.testing import inserted


@pytest.fixture(scope="module")
def providers() -> tuple[InMemorySpanExporter, InMemoryMetricReader]:
    # The global providers can be set once in a process.
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
    return exporter, reader


@pytest.fixture
def spans(providers: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> Iterator[InMemorySpanExporter]:
    providers[0].clear()
    yield providers[0]


def test_the_first_try_is_a_child_and_a_later_one_is_linked(taskq_app: App, spans: InMemorySpanExporter) -> None:
    @taskq_app.task("resize")
    async def resize(body: None, task: taskq.Task) -> None:
        if task.num_tries == 1:
            raise taskq.Retry("again", after="0 seconds")

    with trace.get_tracer("test").start_as_current_span("request") as request:
        taskq_app.insert("resize", id="r", metadata={"who": "ann"})
    assert set(inserted(taskq_app)[0].row["metadata"]) == {"traceparent", "who"}
    taskq_app.work(until_idle=True)
    first, second = [span for span in spans.get_finished_spans() if span.name == "process resize"]
    origin = request.get_span_context()
    assert first.kind == trace.SpanKind.CONSUMER
    assert (first.parent.trace_id, first.parent.span_id) == (origin.trace_id, origin.span_id)
    assert second.parent is None
    assert [link.context.span_id for link in second.links] == [origin.span_id]
    assert first.attributes["messaging.system"] == "taskq"
    assert first.attributes["messaging.destination.name"] == "resize"
    assert first.attributes["messaging.message.id"] == "r"
    assert (first.attributes["taskq.outcome"], second.attributes["taskq.outcome"]) == ("failed", "completed")
    assert first.attributes["error.type"] == "Retry"
    assert first.status.status_code == trace.StatusCode.ERROR
    assert second.status.status_code == trace.StatusCode.UNSET


def test_spans_inside_of_a_handler_are_its_children(taskq_app: App, spans: InMemorySpanExporter) -> None:
    @taskq_app.task("outer")
    def outer() -> None:
        with trace.get_tracer("test").start_as_current_span("inner"):
            taskq_app.insert("next")

    taskq_app.insert("outer")
    taskq_app.work(until_idle=True, actions=["outer"])
    inner, process = spans.get_finished_spans()
    assert (inner.name, process.name) == ("inner", "process outer")
    assert inner.parent.span_id == process.context.span_id
    carried = inserted(taskq_app, "next")[0].row["metadata"]["traceparent"]
    assert f"{inner.context.span_id:016x}" in carried


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [Unprintable(), SystemExit(3), GeneratorExit()])
def test_an_error_that_cannot_be_recorded_as_it_is(
    taskq_app: App, spans: InMemorySpanExporter, error: BaseException
) -> None:
    @taskq_app.task("fail")
    def fail() -> None:
        raise error

    taskq_app.insert("fail", max_tries=1)
    taskq_app.work(until_idle=True)
    [span] = spans.get_finished_spans()
    assert span.attributes["error.type"] == type(error).__name__
    assert len(span.events) == 1
    assert inserted(taskq_app)[0].state == "aborted"


def test_without_a_span_nothing_is_added(taskq_app: App, spans: InMemorySpanExporter) -> None:
    taskq_app.insert("a")
    assert inserted(taskq_app)[0].row["metadata"] is None


def test_steps_are_spans(taskq_app: App, spans: InMemorySpanExporter) -> None:
    taskq_app.task("child")(lambda: None)

    @taskq_app.workflow("order")
    def order(ctx: taskq.Context) -> None:
        ctx.step("pay", int)
        ctx.call("print", "child")

    @taskq_app.workflow("order async")
    async def order_async(ctx: taskq.AsyncContext) -> None:
        await ctx.step("pay", int)

    taskq_app.insert("order", id="o")
    taskq_app.insert("order async")
    taskq_app.work(until_idle=True, concurrency=1)
    found = spans.get_finished_spans()
    performances = {span.context.span_id: span for span in found if span.kind == trace.SpanKind.CONSUMER}
    parents = [performances[span.parent.span_id].name for span in found if span.name == "step pay"]
    assert sorted(parents) == ["process order", "process order async"], "a step that is saved is no span again"
    outcomes = [span.attributes["taskq.outcome"] for span in performances.values() if span.name == "process order"]
    assert outcomes == ["suspended", "completed"]
    # What the workflow has inserted belongs to its trace.
    [child] = [span for span in performances.values() if span.name == "process child"]
    assert child.parent.span_id in performances


def test_metrics(taskq_app: App, spans: object, providers: tuple[InMemorySpanExporter, InMemoryMetricReader]) -> None:
    @taskq_app.task("count")
    def count(fail: bool) -> None:
        if fail:
            raise taskq.Reject

    taskq_app.insert_many("count", [False, False, True])
    taskq_app.work(until_idle=True)
    points = {}
    for resource in providers[1].get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if point.attributes["messaging.destination.name"] == "count":
                        points[metric.name, point.attributes["taskq.outcome"]] = point
    assert points["taskq.performances", "completed"].value == 2
    assert points["taskq.performances", "aborted"].value == 1
    assert points["messaging.process.duration", "completed"].count == 2
