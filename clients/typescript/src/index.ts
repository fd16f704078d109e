/**
 * Workers, durable functions and typed insertion for taskq.
 *
 * @packageDocumentation
 */
export { App, type AppOptions } from "./app.js";
export type {
  ChildOptions,
  Context,
  SignalToWaitFor,
  StepOptions,
  TaskToWaitFor,
  WaitFor,
  WaitOptions,
} from "./context.js";
export { Aborted, Reject, Retry, type RetryOptions, TaskLost, TimedOut, WorkerStopped } from "./errors.js";
export type {
  ActionOptions,
  Answer,
  Handler,
  HandlerOptions,
  TransactionalHandler,
  Workflow,
} from "./handlers.js";
export { Complete, type CompleteOptions, type Task } from "./task.js";
export type {
  Action,
  Backoff,
  Condition,
  Dependency,
  DependencyResult,
  Duration,
  InsertCall,
  Instant,
  Logger,
  NewTask,
  Queryable,
  ScheduleOptions,
  Schema,
  SchemaResult,
  Settled,
  StandardSchema,
  TaskOptions,
  UniqueBy,
  WorkOptions,
} from "./types.js";
