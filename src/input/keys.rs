//! The keys of the objects that callers give as JSON, with what each may be. What the structs of serde read must
//! agree with this; a test in `element` compares those that are derived.

use super::shape::{Object, Shape};

const CONDITION: Shape = Shape::OneOf(&["completed", "settled", "aborted"]);
/// Both are read by Postgres.
const INTERVAL: Shape = Shape::Written("an interval as a string, such as \"5 minutes\"");
const TIMESTAMP: Shape = Shape::Written("a timestamp as a string, such as \"2030-01-31 12:00 UTC\"");

static REFERENCE: Object = Object {
    name: "a reference to a task",
    what: "an object with \"id\" and \"condition\"",
    keys: &[("id", Shape::Text), ("condition", CONDITION)],
    required: &["id"],
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
        ("lease", INTERVAL),
        ("not_before", TIMESTAMP),
        ("delay", INTERVAL),
        ("depends_on", REFERENCES),
        ("to_signal_after", REFERENCES),
        ("num_required", Shape::Integer),
        ("spontaneous", Shape::Boolean),
        ("signal", Shape::Boolean),
        ("expires_at", TIMESTAMP),
        ("expires_in", INTERVAL),
        ("max_run_time", INTERVAL),
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
};

/// A dependency.
pub(crate) static DEPENDENCY: Object = Object {
    name: "a dependency",
    what: "an object with the keys of a dependency",
    keys: &[("after", Shape::Text), ("run", Shape::Text), ("condition", CONDITION)],
    required: &["after", "run"],
};

/// What a suspended task waits for.
pub(crate) static AWAITED: Object = Object {
    name: "a dependency",
    what: "an id, or an object with \"id\", \"condition\" and \"signal\"",
    keys: &[
        ("id", Shape::Text),
        ("condition", CONDITION),
        ("signal", Shape::Boolean),
        ("action", Shape::Text),
        ("group_id", Shape::Text),
        ("expires_at", TIMESTAMP),
        ("expires_in", INTERVAL),
    ],
    required: &["id"],
};

/// A signal.
pub(crate) static SIGNAL: Object = Object {
    name: "a signal",
    what: "an object with the keys of a signal",
    keys: &[
        ("task_id", Shape::Text),
        ("result", Shape::Any),
        ("status", Shape::Text),
        ("action", Shape::Text),
        ("retention", INTERVAL),
    ],
    required: &["task_id"],
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
        ("depends_on", Shape::Any),
        ("wait_at_most", INTERVAL),
    ],
    required: &[],
};
