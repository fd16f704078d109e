//! The keys of everything that callers give as JSON, with what each may be. What the structs of serde read must
//! agree with this; a test below says so.

use super::shape::{Object, Shape};

const CONDITION: Shape = Shape::OneOf(&["completed", "settled", "aborted"]);
/// Both are read by Postgres.
const INTERVAL: Shape = Shape::Written("an interval as a string, \"5 minutes\" for instance");
const TIMESTAMP: Shape = Shape::Written("a timestamp as a string, \"2030-01-31 12:00 UTC\" for instance");

static REFERENCE: Object = Object {
    name: "a reference to a task",
    what: "an object with \"id\" and \"condition\"",
    keys: &[("id", Shape::Text), ("condition", CONDITION)],
    required: &["id"],
    otherwise: &[
        ("task_id", "id"),
        ("task", "id"),
        ("after", "id"),
        ("run", "id"),
        ("on", "condition"),
        ("when", "condition"),
    ],
};
const REFERENCES: Shape = Shape::List(&Shape::Either(
    "an id or an object with \"id\" and \"condition\"",
    &[Shape::Text, Shape::Object(&REFERENCE)],
));

static RETENTION: Object = Object {
    name: "a retention",
    what: "an object with \"completed\" and \"aborted\"",
    keys: &[("completed", INTERVAL), ("aborted", INTERVAL)],
    required: &[],
    otherwise: &[("failed", "aborted"), ("done", "completed")],
};

/// `backoff`
pub(crate) static BACKOFF: Object = Object {
    name: "a backoff",
    what: "an object with \"kind\", \"initial\", \"max\" and \"jitter\"",
    keys: &[
        ("kind", Shape::OneOf(&["fixed", "exponential"])),
        ("initial", INTERVAL),
        ("max", INTERVAL),
        ("jitter", Shape::Number),
    ],
    required: &["kind", "initial"],
    otherwise: &[
        ("type", "kind"),
        ("strategy", "kind"),
        ("delay", "initial"),
        ("base", "initial"),
        ("min", "initial"),
        ("minimum", "initial"),
        ("cap", "max"),
        ("limit", "max"),
        ("maximum", "max"),
        ("max_delay", "max"),
        ("random", "jitter"),
        ("randomness", "jitter"),
    ],
};

/// `unique_by`, where it is an object
pub(super) static UNIQUE: Object = Object {
    name: "unique_by",
    what: "true, a key, or an object with \"key\", \"period\", \"states\", \"on_conflict\" and \"max_wait\"",
    keys: &[
        ("key", Shape::Text),
        ("period", INTERVAL),
        ("states", Shape::List(&Shape::Text)),
        ("on_conflict", Shape::OneOf(&["skip", "replace", "error"])),
        ("max_wait", INTERVAL),
    ],
    required: &[],
    otherwise: &[
        ("id", "key"),
        ("by", "key"),
        ("unique_key", "key"),
        ("state", "states"),
        ("ttl", "period"),
        ("for", "period"),
        ("window", "period"),
        ("if_held", "on_conflict"),
    ],
};

/// A task.
pub(crate) static TASK: Object = Object {
    name: "a task",
    what: "an object with the keys of a task",
    keys: &[
        ("id", Shape::Text),
        ("action", Shape::Text),
        ("body", Shape::Any),
        ("priority", Shape::Integer),
        ("max_tries", Shape::Integer),
        ("max_duration", INTERVAL),
        ("not_before", TIMESTAMP),
        ("delay", INTERVAL),
        ("depends_on", REFERENCES),
        ("to_signal_after", REFERENCES),
        ("spontaneous", Shape::Boolean),
        ("post_result", Shape::Boolean),
        ("group_id", Shape::Text),
        ("workgroup", Shape::Text),
        ("merge_key", Shape::Text),
        ("unique_by", Shape::Any),
        ("seed", Shape::Boolean),
        ("backoff", Shape::Object(&BACKOFF)),
        (
            "retention",
            Shape::Either(
                "an interval, or an object with \"completed\" and \"aborted\"",
                &[INTERVAL, Shape::Object(&RETENTION)],
            ),
        ),
        ("metadata", Shape::Any),
    ],
    required: &["action"],
    otherwise: &[
        ("args", "body"),
        ("arguments", "body"),
        ("data", "body"),
        ("input", "body"),
        ("message", "body"),
        ("params", "body"),
        ("payload", "body"),
        ("function", "action"),
        ("job", "action"),
        ("kind", "action"),
        ("name", "action"),
        ("queue", "action"),
        ("task", "action"),
        ("topic", "action"),
        ("type", "action"),
        ("job_id", "id"),
        ("task_id", "id"),
        ("uuid", "id"),
        ("prio", "priority"),
        ("attempts", "max_tries"),
        ("max_attempts", "max_tries"),
        ("max_retries", "max_tries"),
        ("retries", "max_tries"),
        ("retry_limit", "max_tries"),
        ("expire_in", "max_duration"),
        ("lease", "max_duration"),
        ("timeout", "max_duration"),
        ("visibility_timeout", "max_duration"),
        ("eta", "not_before"),
        ("run_at", "not_before"),
        ("schedule_at", "not_before"),
        ("scheduled_at", "not_before"),
        ("start_after", "not_before"),
        ("countdown", "delay"),
        ("after", "depends_on"),
        ("dependencies", "depends_on"),
        ("deps", "depends_on"),
        ("needs", "depends_on"),
        ("parents", "depends_on"),
        ("requires", "depends_on"),
        ("run_after", "depends_on"),
        ("wait_for", "depends_on"),
        ("children", "to_signal_after"),
        ("dependents", "to_signal_after"),
        ("next", "to_signal_after"),
        ("run_before", "to_signal_after"),
        ("then", "to_signal_after"),
        ("notify", "post_result"),
        ("concurrency_key", "group_id"),
        ("tenant", "group_id"),
        ("dedup_key", "unique_by"),
        ("idempotency_key", "unique_by"),
        ("job_key", "unique_by"),
        ("singleton_key", "unique_by"),
        ("unique_key", "unique_by"),
        ("retry_backoff", "backoff"),
        ("retry_delay", "backoff"),
        ("keep", "retention"),
        ("keep_until", "retention"),
        ("ttl", "retention"),
        ("context", "metadata"),
        ("headers", "metadata"),
        ("labels", "metadata"),
        ("meta", "metadata"),
        ("tags", "metadata"),
    ],
};

/// A dependency.
pub(crate) static DEPENDENCY: Object = Object {
    name: "a dependency",
    what: "an object with the keys of a dependency",
    keys: &[("after", Shape::Text), ("run", Shape::Text), ("condition", CONDITION)],
    required: &["after", "run"],
    otherwise: &[
        ("before", "after"),
        ("from", "after"),
        ("parent", "after"),
        ("depends_on", "after"),
        ("child", "run"),
        ("to", "run"),
        ("id", "run"),
        ("task_id", "run"),
        ("on", "condition"),
        ("when", "condition"),
    ],
};

/// A return.
pub(crate) static RETURN: Object = Object {
    name: "a return",
    what: "an object with the keys of a return",
    keys: &[
        ("task_id", Shape::Text),
        ("token", Shape::Text),
        ("status_code", Shape::Text),
        ("status", Shape::Text),
        ("result", Shape::Any),
        ("retry_after", INTERVAL),
        ("children", Shape::Any),
        ("children_block", Shape::Boolean),
        ("delay_children", INTERVAL),
        ("delay_workgroup", INTERVAL),
        ("count_try", Shape::Boolean),
    ],
    required: &[],
    otherwise: &[
        ("id", "task_id"),
        ("code", "status_code"),
        ("outcome", "status_code"),
        ("state", "status_code"),
        ("error", "status"),
        ("message", "status"),
        ("output", "result"),
        ("value", "result"),
        ("delay", "retry_after"),
        ("retry_in", "retry_after"),
        ("count", "count_try"),
    ],
};
