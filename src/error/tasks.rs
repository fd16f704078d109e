//! Tasks, and other things of the queue, that are not there, or not in the state that is wanted.

use super::text::shortened;
use super::{MAX_NAME, NO_SUCH_TASK, Refusal, STALE_TOKEN};

impl Refusal {
    /// `TQ001`: the token is not the last one granted. `standing` says how the task stands, for a caller that
    /// may know.
    pub(crate) fn stale_token(id: &str, standing: Option<&str>) -> Self {
        let id = shortened(id);
        let now = standing.unwrap_or(
            "The task was returned or suspended, taken over or aborted after its deadline, cancelled, released by an operator, \
             completed by hand, replaced, reset with its group, or never owned with it.",
        );
        Refusal::new(
            STALE_TOKEN,
            format!("the performance token of task \"{id}\" is not valid"),
            format!("It is not the last one granted. {now}"),
            "Drop this performance; only the last token granted decides on the task.",
        )
    }

    /// `TQ001`: the token was granted on another shard.
    pub(crate) fn other_shard(id: &str, its: i32, this: i32) -> Self {
        Refusal::new(
            STALE_TOKEN,
            format!("the performance token of task \"{}\" is not valid", shortened(id)),
            format!("It was granted on shard {its}, and this is shard {this}."),
            "Send it to the server that taskq.shard_of(token) tells of.",
        )
    }

    /// `TQ002`: a task with this id exists.
    pub(crate) fn exists(id: &str, standing: &str, hint: &str) -> Self {
        let id = shortened(id);
        Refusal::new("TQ002", format!("task \"{id}\" exists already"), standing.to_owned(), hint)
    }

    /// `TQ002`: an id stands twice in one call.
    pub(crate) fn repeated(id: &str) -> Self {
        let id = shortened(id);
        Refusal::new(
            "TQ002",
            format!("task \"{id}\" stands twice in this call"),
            format!("The id \"{id}\" is given to more than one element."),
            "Give each task an id of its own, or leave the id out to have one made.",
        )
    }

    /// `TQ002`: the key of a unique task is held by another.
    pub(crate) fn key_held(action: &str, key: &str, id: &str, standing: &str) -> Self {
        Refusal::new(
            "TQ002",
            format!("the unique key \"{}\" is held by task \"{}\"", shortened(key), shortened(id)),
            format!(
                "{standing} Both tasks have the action \"{}\", and \"on_conflict\" is \"error\".",
                shortened(action)
            ),
            "Use \"on_conflict\": \"skip\" to leave such a task out, or \"replace\" to keep the newest.",
        )
    }

    /// `TQ003`: no such task. Of what can be the id of none, `22023`.
    pub(crate) fn no_such_task(id: &str) -> Self {
        if !(1..=MAX_NAME).contains(&id.len()) {
            return Refusal::argument(
                &format!("the id of a task is not valid: {} bytes long", id.len()),
                &format!("The value is \"{}\".", shortened(id)),
                "Give an id of 1 to 1,000 bytes.",
            );
        }
        Refusal::new(
            NO_SUCH_TASK,
            format!("task \"{}\" does not exist", shortened(id)),
            "It was never inserted, or it was deleted, or its retention is over.".to_owned(),
            "Check the id; taskq.tasks shows the tasks there are.",
        )
    }

    /// `TQ003`: a dependency names a task that does not exist.
    pub(crate) fn dependency_missing(id: &str, of: &str) -> Self {
        Refusal::new(
            NO_SUCH_TASK,
            format!("task \"{}\" does not exist", shortened(id)),
            format!(
                "A dependency of \"{}\" names it, and it is neither in this call nor in the queue.",
                shortened(of)
            ),
            "Insert it first or in the same call, or use if_missing => 'ignore' to leave such dependencies out.",
        )
    }

    /// `TQ003`: a task was deleted while a call waited for it.
    pub(crate) fn deleted_meanwhile(id: &str) -> Self {
        Refusal::new(
            NO_SUCH_TASK,
            format!("task \"{}\" does not exist any more", shortened(id)),
            "It was deleted while this call waited for it.".to_owned(),
            "Insert the task again if it is still wanted.",
        )
    }

    /// `TQ004`: the dependencies close a cycle; `path` starts and ends with the same id.
    pub(crate) fn cycle(path: &[String]) -> Self {
        Refusal::new(
            "TQ004",
            format!("these dependencies close a cycle through task \"{}\"", shortened(&path[0])),
            shown_path(path),
            "Leave one of these dependencies out; a -> b means that b runs after a.",
        )
    }

    /// `TQ005`: the task's state forbids what was asked for.
    pub(crate) fn state(id: &str, state: &str, what: &str, hint: &str) -> Self {
        let id = shortened(id);
        Refusal::new("TQ005", format!("task \"{id}\" {what}"), format!("The task is {state}."), hint)
    }

    /// `TQ005`: the name of an action is still in use.
    pub(crate) fn action_in_use(name: &str, detail: &str) -> Self {
        Refusal::new(
            "TQ005",
            format!("action \"{}\" is in use", shortened(name)),
            shortened(detail),
            "Delete its tasks, or wait until their retention is over, and remove its schedules; then forget the name.",
        )
    }

    /// `TQ005`: the same dependency with another condition.
    pub(crate) fn other_condition(after: &str, run: &str, has: &str, wants: &str) -> Self {
        let (after, run) = (shortened(after), shortened(run));
        Refusal::new(
            "TQ005",
            format!("task \"{run}\" already runs after \"{after}\" with another condition"),
            format!("The condition is \"{has}\", and \"{wants}\" was asked for."),
            "A dependency keeps its condition; delete and insert the task to change it.",
        )
    }

    /// `TQ005`: a call names a dependency twice, with two conditions.
    pub(crate) fn two_conditions(after: &str, run: &str, one: &str, other: &str) -> Self {
        let (after, run) = (shortened(after), shortened(run));
        Refusal::new(
            "TQ005",
            format!("task \"{run}\" is to run after \"{after}\" with two conditions"),
            format!("The call names this dependency with the conditions \"{one}\" and \"{other}\"."),
            "A dependency has one condition; name it once.",
        )
    }

    /// `TQ005`: the shard is set before the first task, or never.
    pub(crate) fn shard_is_set(shard: i32) -> Self {
        Refusal::new(
            "TQ005",
            format!("this queue has had tasks: it stays shard {shard}"),
            "Their numbers and their tokens contain it.".to_owned(),
            "Set the shard of a new database, before its first task; the tasks of this one stay where they are.",
        )
    }

    /// `54000`: all numbers that tasks may have are used up.
    pub(crate) fn no_more_numbers(shard: i32) -> Self {
        Refusal::new(
            "54000",
            format!("shard {shard} has no more numbers for tasks"),
            "All but the last 2^40 of its 2^48 numbers were given to tasks and grants; these are kept for the tasks there are."
                .to_owned(),
            "Insert into another shard, and let this one run empty.",
        )
    }

    /// `TQ007`: no such group, schedule, action or action setting.
    pub(crate) fn no_such(kind: &str, name: &str) -> Self {
        let view = match kind {
            "action setting" => "actions".to_owned(),
            kind => format!("{kind}s"),
        };
        Refusal::new(
            "TQ007",
            format!("{kind} \"{}\" does not exist", shortened(name)),
            format!("There is no {kind} with this name."),
            &format!("Check the name; taskq.{view} shows those there are."),
        )
    }

    /// `TQ007`: the task has saved no such step.
    pub(crate) fn no_such_step(id: &str, step: &str) -> Self {
        let (id, step) = (shortened(id), shortened(step));
        Refusal::new(
            "TQ007",
            format!("step \"{step}\" of task \"{id}\" does not exist"),
            format!("Task \"{id}\" has saved no step \"{step}\", or has forgotten it."),
            "Check the name; taskq.steps shows what the task has saved. To start it over from the beginning, use taskq.rerun_tasks().",
        )
    }
}

/// The ids along a path, as many as fit on a line of a log; of a long one the beginning and the end.
fn shown_path(path: &[String]) -> String {
    const MOST_IDS_SHOWN: usize = 12;
    let shown = |ids: &[String]| ids.iter().map(|id| shortened(id)).collect::<Vec<_>>().join(" -> ");
    if path.len() <= MOST_IDS_SHOWN {
        return shown(path);
    }
    let (head, tail) = (&path[..MOST_IDS_SHOWN / 2], &path[path.len() - MOST_IDS_SHOWN / 2..]);
    format!("{} -> ... {} more ... -> {}", shown(head), path.len() - MOST_IDS_SHOWN, shown(tail))
}
