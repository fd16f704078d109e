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
  TasksToWaitFor,
  WaitOptions,
} from "./context.js";
export { Aborted, Lost, Reject, Retry, type RetryOptions, TimedOut, WorkerStopped } from "./errors.js";
export { Handle } from "./handle.js";
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
  ActionSettings,
  Backoff,
  Condition,
  Dependency,
  DependencyResult,
  Duration,
  GroupSettings,
  Id,
  InsertCall,
  Instant,
  LogFields,
  Logger,
  NewTask,
  Queryable,
  ScheduleOptions,
  Schema,
  SchemaResult,
  Selection,
  Settled,
  StandardSchema,
  Target,
  TaskOptions,
  TaskState,
  UniqueBy,
  WorkOptions,
} from "./types.js";
