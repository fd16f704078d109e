import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { context, metrics, propagation, SpanKind, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { Reject, Retry } from "taskq-pg";
import { Database } from "./support.js";

describe("telemetry", () => {
  const spans = new InMemorySpanExporter();
  const measured = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: measured, exportIntervalMillis: 3_600_000 });
  let database: Database;
  before(async () => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    propagation.setGlobalPropagator(new W3CTraceContextPropagator());
    trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
    metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
    database = await Database.make();
  });
  beforeEach(() => spans.reset());
  after(async () => {
    await reader.shutdown();
    await database.drop();
  });
  const named = (name: string) => spans.getFinishedSpans().filter((span) => span.name === name);

  test("a first try is a child of the insertion, a later one begins a trace and links to it", async () => {
    const app = database.app();
    const inside: (string | undefined)[] = [];
    app.task("traced", (_, task) => {
      inside.push(trace.getActiveSpan()?.spanContext().spanId);
      if (task.numTries === 1) throw new Retry("again", { after: "0 milliseconds" });
    });
    const request = trace.getTracer("test").startSpan("request");
    await context.with(trace.setSpan(context.active(), request), () =>
      app.insert("traced", 1, { id: "traced", metadata: { by: "ann" } }),
    );
    request.end();
    await app.work({ untilIdle: true });
    const [send] = named("send traced");
    const [first, second] = named("process traced");
    assert.ok(send && first && second);
    const { by, traceparent } = (await database.task("traced")).metadata;
    assert.equal(by, "ann");
    assert.ok(traceparent.includes(send.spanContext().spanId));
    assert.equal(send.kind, SpanKind.PRODUCER);
    assert.equal(send.parentSpanContext?.spanId, request.spanContext().spanId);
    assert.equal(first.kind, SpanKind.CONSUMER);
    assert.equal(first.parentSpanContext?.spanId, send.spanContext().spanId);
    assert.equal(first.spanContext().traceId, request.spanContext().traceId);
    assert.equal(second.parentSpanContext, undefined);
    assert.notEqual(second.spanContext().traceId, request.spanContext().traceId);
    assert.deepEqual(
      second.links.map((link) => link.context.spanId),
      [send.spanContext().spanId],
    );
    assert.deepEqual(inside, [first.spanContext().spanId, second.spanContext().spanId]);
    assert.deepEqual(
      [first.attributes["messaging.message.id"], first.attributes["taskq.outcome"], first.attributes["error.type"]],
      ["traced", "pending", "Retry"],
    );
    assert.equal(second.attributes["taskq.outcome"], "completed");
  });

  test("what a handler inserts belongs to its span", async () => {
    const app = database.app();
    app.task("outer", () => app.insert("inner", 1));
    app.task("inner", () => 1);
    await app.insert("outer");
    await app.work({ untilIdle: true });
    const [outer] = named("process outer");
    const [inner] = named("process inner");
    assert.equal(inner?.spanContext().traceId, outer?.spanContext().traceId);
  });

  test("each step is a span of its performance, and a suspension is an outcome", async () => {
    const app = database.app();
    app.workflow("traced workflow", async (ctx) => {
      await ctx.step("pay", () => 1);
      await ctx.transaction("book", () => 2);
      await ctx.waitFor("go", { signal: "traced go" });
      await ctx.step("ship", () => 3);
    });
    await app.insert("traced workflow");
    await app.work({ untilIdle: true });
    await app.signal("traced go");
    await app.work({ untilIdle: true });
    const [first, second] = named("process traced workflow");
    assert.deepEqual(
      [first?.attributes["taskq.outcome"], second?.attributes["taskq.outcome"]],
      ["suspended", "completed"],
    );
    for (const [step, performance] of [
      ["pay", first],
      ["book", first],
      ["ship", second],
    ] as const) {
      assert.equal(named(`step ${step}`).length, 1);
      assert.equal(named(`step ${step}`)[0]?.parentSpanContext?.spanId, performance?.spanContext().spanId);
    }
    // It has used up no try, so it is still the first one.
    assert.equal(second?.spanContext().traceId, first?.spanContext().traceId);
  });

  test("performances are counted by action and outcome", async () => {
    const app = database.app();
    app.task("counted", (n: number) => {
      if (n > 2) throw new Reject("too many");
    });
    await app.insertMany("counted", [1, 2, 3]);
    await app.work({ untilIdle: true });
    await reader.forceFlush();
    const points = measured
      .getMetrics()
      .flatMap((resource) => resource.scopeMetrics)
      .flatMap((scope) => scope.metrics)
      .filter((metric) => metric.descriptor.name === "messaging.process.duration")
      .flatMap((metric) => metric.dataPoints as { attributes: Record<string, unknown>; value: { count: number } }[])
      .filter((point) => point.attributes["messaging.destination.name"] === "counted");
    assert.deepEqual(
      points
        .map(({ attributes, value }) => [attributes["taskq.outcome"], attributes["error.type"], value.count])
        .sort(),
      [
        ["aborted", "Reject", 1],
        ["completed", undefined, 2],
      ],
    );
  });
});
