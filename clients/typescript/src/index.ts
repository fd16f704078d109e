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
export type { Around } from "./environment.js";
export {
  Aborted,
  AlreadyExists,
  Cycle,
  Leave,
  Lost,
  Malformed,
  NotFound,
  Reject,
  Retry,
  type RetryOptions,
  TimedOut,
  WorkerStopped,
  WrongState,
} from "./errors.js";
export { type Action, Handle } from "./handle.js";
export type {
  ActionOptions,
  Answer,
  BatchHandler,
  BatchOptions,
  ErrorClass,
  Handler,
  HandlerOptions,
  Results,
  TransactionalHandler,
  Workflow,
} from "./handlers.js";
export type { WorkOptions } from "./places.js";
export { Complete, type CompleteOptions, type Task } from "./task.js";
export type * from "./types.js";
