import type * as Otel from "@opentelemetry/api";
import { describe, guarded } from "./errors.js";

/** `@opentelemetry/api` where it is installed. It finds the SDK of the process. */
const otel = load();

function load(): typeof Otel | undefined {
  try {
    return require("@opentelemetry/api");
  } catch {
    return undefined;
  }
}

const NAME = "taskq-pg";
/** The buckets that the messaging conventions recommend. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];

/** The context of the active span as `traceparent` and `tracestate`; undefined if there is none. */
export function traceContext(): Record<string, string> | undefined {
  if (!otel) return undefined;
  const carrier: Record<string, string> = {};
  otel.propagation.inject(otel.context.active(), carrier);
  const { traceparent, tracestate } = carrier;
  if (!traceparent) return undefined;
  return tracestate ? { traceparent, tracestate } : { traceparent };
}

/** Inserts within a producer span. */
export function tracedInsert<T>(actions: string[], insert: () => Promise<T>): Promise<T> {
  if (!otel) return insert();
  const [action] = new Set(actions).size === 1 ? actions : [];
  return spanned(action === undefined ? "send" : `send ${action}`, insert, {
    kind: otel.SpanKind.PRODUCER,
    attributes: {
      ...messaging("send", action),
      ...(actions.length > 1 ? { "messaging.batch.message_count": actions.length } : {}),
    },
  });
}

/** Runs a step of a workflow within a span of its own. */
export function tracedStep<T>(name: string, step: () => Promise<T>): Promise<T> {
  return otel ? spanned(`step ${name}`, step, { attributes: { "taskq.step": name } }) : step();
}

/** What is told of a task. */
interface Traced {
  readonly id: string;
  readonly action: string;
  readonly numTries: number;
  readonly metadata: Record<string, unknown>;
}

/** How a performance has ended: what is returned, and the error if there was one. */
export interface Ending {
  /** Absent: the handler has returned the task itself. */
  outcome?: { status_code: string; depends_on?: unknown };
  error?: unknown;
}

/**
 * Performs a task within a consumer span. The first try is a child of the span that inserted the task. Later ones begin a
 * trace of their own that links to it, since they may come hours later.
 */
export async function tracedPerformance<E extends Ending>(task: Traced, perform: () => Promise<E>): Promise<E> {
  if (!otel) return perform();
  const { context, propagation, trace, ROOT_CONTEXT, SpanKind } = otel;
  // Nothing else of the metadata: an inserter could pass `baggage` to other services with it.
  const { traceparent, tracestate } = task.metadata;
  const inserted = propagation.extract(ROOT_CONTEXT, { traceparent, tracestate });
  const origin = trace.getSpanContext(inserted);
  const first = task.numTries <= 1;
  const span = trace.getTracer(NAME).startSpan(
    `process ${task.action}`,
    {
      kind: SpanKind.CONSUMER,
      attributes: {
        ...messaging("process", task.action),
        "messaging.message.id": task.id,
        "taskq.task.num_tries": task.numTries,
      },
      links: !first && origin ? [{ context: origin }] : [],
    },
    first ? inserted : ROOT_CONTEXT,
  );
  const begun = performance.now();
  const parent = first ? inserted : ROOT_CONTEXT;
  const ending = await context.with(trace.setSpan(parent, span), perform);
  const outcome = ending.outcome?.depends_on ? "suspended" : (ending.outcome?.status_code ?? "completed");
  span.setAttribute("taskq.outcome", outcome);
  if ("error" in ending) fail(span, ending.error);
  span.end();
  record((performance.now() - begun) / 1000, {
    ...messaging("process", task.action),
    "taskq.outcome": outcome,
    ...("error" in ending ? { "error.type": typeOf(ending.error) } : {}),
  });
  return ending;
}

function spanned<T>(name: string, run: () => Promise<T>, options: Otel.SpanOptions): Promise<T> {
  return (otel as typeof Otel).trace.getTracer(NAME).startActiveSpan(name, options, async (span) => {
    try {
      return await run();
    } catch (error) {
      fail(span, error);
      throw error;
    } finally {
      span.end();
    }
  });
}

function fail(span: Otel.Span, error: unknown): void {
  span.setAttribute("error.type", typeOf(error));
  // What a handler throws may throw when it is asked for its parts.
  guarded(() => span.recordException(error instanceof Error ? error : describe(error)), undefined);
  span.setStatus({ code: (otel as typeof Otel).SpanStatusCode.ERROR, message: describe(error) });
}

function typeOf(error: unknown): string {
  return guarded(() => (error instanceof Error ? `${error.name}` : "_OTHER"), "_OTHER");
}

/** The attributes of OpenTelemetry's conventions for messaging. */
function messaging(operation: string, action: string | undefined): Otel.Attributes {
  return {
    "messaging.system": "taskq",
    "messaging.operation.name": operation,
    "messaging.operation.type": operation,
    ...(action === undefined ? {} : { "messaging.destination.name": action }),
  };
}

/** The instrument is asked for each time: an SDK that starts later would not hear of one that was made before. */
function record(seconds: number, attributes: Otel.Attributes): void {
  (otel as typeof Otel).metrics
    .getMeter(NAME)
    .createHistogram("messaging.process.duration", {
      description: "Duration of performances, by action and outcome.",
      unit: "s",
      advice: { explicitBucketBoundaries: SECONDS },
    })
    .record(seconds, attributes);
}
