//! Every refusal of the queue: its SQLSTATE, its message, the facts and what to do about it.
//!
//! Codes are here, but for a few that `pg` and functions in SQL raise themselves. Messages are lower case without a
//! full stop and name the thing, details and hints are sentences, as in Postgres' own style.

use std::collections::BTreeSet;

use crate::pg::throw::throw;

/// An error that leaves the caller's transaction aborted and nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code that the caller gets: five characters, `TQ001` to `TQ007` or one of Postgres' own.
    pub(crate) sqlstate: &'static str,
    message: String,
    detail: String,
    hint: String,
}

/// What the verbs return.
pub(crate) type Result<T> = std::result::Result<T, Refusal>;

/// `TQ001`, also where it is a result and not an error.
pub(crate) const STALE_TOKEN: &str = "TQ001";
/// `TQ003`, also where it is a result and not an error.
pub(crate) const NO_SUCH_TASK: &str = "TQ003";

/// Unwraps a verb's result, raising its refusal as a Postgres error.
pub(crate) fn or_throw<T>(result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(refusal) => throw(refusal.sqlstate, &refusal.message, &refusal.detail, &refusal.hint),
    }
}

impl Refusal {
    fn new(sqlstate: &'static str, message: String, detail: String, hint: &str) -> Self {
        Refusal { sqlstate, message, detail, hint: hint.to_owned() }
    }

    /// The same with the return, counted from 1, that it came from.
    pub(crate) fn of_return(mut self, n: usize, id: Option<&str>) -> Self {
        let id = id.map(|id| format!(" (\"{}\")", shortened(id))).unwrap_or_default();
        self.detail.push_str(&format!(" It belongs to return {n}{id} of the call."));
        self
    }

    /// Message and detail in one line, where a refusal is noted and not raised.
    pub(crate) fn summary(&self) -> String {
        format!("{} ({})", self.message, self.detail)
    }

    /// `TQ001`: the token is not the last one granted. `standing` says how the task stands, for a caller that
    /// may know.
    pub(crate) fn stale_token(id: &str, standing: Option<&str>) -> Self {
        let id = shortened(id);
        let now = standing.unwrap_or(
            "The task was returned, taken over or aborted after its deadline, cancelled, completed by hand, replaced, reset \
             with its group, or never owned with it.",
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

    /// `TQ002`: one element of a call was to be left out for a task that another one replaces.
    pub(crate) fn skipped_and_replaced(id: &str) -> Self {
        let id = shortened(id);
        Refusal::new(
            "TQ002",
            format!("task \"{id}\" exists, and is to be replaced"),
            "An element of the call has its id, and would be skipped; another one takes its place by its unique key.".to_owned(),
            "Insert the two in one call each, the one with the key first.",
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

    /// `TQ003`: no such task.
    pub(crate) fn no_such_task(id: &str) -> Self {
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

    /// `TQ006`: element `n` (counted from 1) of an array of what has this name is malformed; `None`: the one that the call is
    /// about.
    pub(crate) fn malformed(name: &str, n: Option<usize>, id: Option<&str>, what: &str, hint: &str) -> Self {
        // Enough to find it by; that of one whose id is too long has to be short.
        let id = id.map(|id| format!("\"{}\"", first_of(id, 60)));
        let detail = match (n, id) {
            (Some(n), Some(id)) => format!("This is element {n} ({id}) of the call."),
            (Some(n), None) => format!("This is element {n} of the call."),
            (None, Some(id)) => format!("This is {name} {id}."),
            (None, None) => format!("This is the {name} that the call is about."),
        };
        Refusal::new("TQ006", format!("malformed {name}: {}", shortened(what)), detail, hint)
    }

    /// `TQ006`: what should be an object is something else.
    pub(crate) fn not_an_object(argument: &str, name: &str, is: &str) -> Self {
        Refusal::new(
            "TQ006",
            format!("argument \"{argument}\" is not a JSON object"),
            format!("It is {is}."),
            &format!("Give one {name} as an object: {{...}}."),
        )
    }

    /// `TQ006`: what should be an array of elements of this name is something else.
    pub(crate) fn not_an_array(argument: &str, name: &str, is: &str) -> Self {
        let hint = match is {
            // The classic mistake with drivers that encode by themselves.
            "a string" => {
                "Pass the array itself: this is a JSON string, perhaps of JSON that was encoded twice."
                    .to_owned()
            }
            _ => format!("Put each {name} as an object into one array: [{{...}}, {{...}}]."),
        };
        Refusal::new(
            "TQ006",
            format!("argument \"{argument}\" is not a JSON array of objects"),
            format!("It is {is}."),
            &hint,
        )
    }

    /// `TQ007`: no such group, workgroup, schedule or action setting.
    pub(crate) fn no_such(kind: &str, name: &str) -> Self {
        Refusal::new(
            "TQ007",
            format!("{kind} \"{}\" does not exist", shortened(name)),
            format!("Nothing in the queue has the {kind} \"{}\".", shortened(name)),
            "Check the name; the views of schema taskq show what there is.",
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

    /// `42501`: the role may do this with tasks of other actions only than one that the call names.
    pub(crate) fn not_his_action(action: &str, allowed: &BTreeSet<String>) -> Self {
        let what = format!("tasks of action \"{}\"", shortened(action));
        Refusal::not_his(&what, allowed, "this action")
    }

    /// `42501`: the same of a task that the call names. Of which action it is is none of the role's business.
    pub(crate) fn not_his_task(id: &str, allowed: &BTreeSet<String>) -> Self {
        Refusal::not_his(&format!("task \"{}\"", shortened(id)), allowed, "its action")
    }

    /// `42501`: the same of tasks that the call does not name.
    pub(crate) fn not_his_tasks(allowed: &BTreeSet<String>) -> Self {
        Refusal::not_his("tasks of other actions", allowed, "these")
    }

    fn not_his(what: &str, allowed: &BTreeSet<String>, missing: &str) -> Self {
        const SHOWN: usize = 10;
        let names: Vec<String> =
            allowed.iter().take(SHOWN).map(|name| format!("\"{}\"", shortened(name))).collect();
        let more = if allowed.len() > SHOWN {
            format!(" and {} more", allowed.len() - SHOWN)
        } else {
            String::new()
        };
        let detail = if names.is_empty() {
            "The role may do this with tasks of no action any more.".to_owned()
        } else {
            format!("The role may do this with tasks of {}{more}.", names.join(", "))
        };
        Refusal::new(
            "42501",
            format!("permission denied for {what}"),
            detail,
            &format!("Ask the administrator of the queue to name {missing}, too, when the part is granted."),
        )
    }

    /// `42501`: the role may insert tasks, and not do this with those there are.
    pub(crate) fn only_inserts(what: &str, hint: &str) -> Self {
        Refusal::new(
            "42501",
            format!("permission denied to {what}"),
            "The role may insert tasks, and do nothing with those there are.".to_owned(),
            hint,
        )
    }

    /// `22023`: an argument out of range.
    pub(crate) fn out_of_range(argument: &str, value: &str, hint: &str) -> Self {
        let message = format!("argument \"{argument}\" is out of range");
        Refusal::new("22023", message, format!("The value is {}.", shortened(value)), hint)
    }

    /// `22023`: the same of an argument that is no number or length of time.
    pub(crate) fn not_valid(argument: &str, value: &str, hint: &str) -> Self {
        let message = format!("argument \"{argument}\" is not valid");
        Refusal::new("22023", message, format!("The value is {value}."), hint)
    }

    /// `22023`: an argument that takes one of a few words is another one.
    pub(crate) fn no_such_word(argument: &str, value: &str, words: &[&str], meant: Option<&str>) -> Self {
        let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let hint = match meant {
            Some(word) => format!("\"{word}\" is probably meant."),
            None => "Use one of these words.".to_owned(),
        };
        let what = format!("\"{}\", which is none of {}", shortened(value), words.join(", "));
        Refusal::not_valid(argument, &what, &hint)
    }

    /// The same with what is to be done about it.
    pub(crate) fn with_hint(mut self, hint: &str) -> Self {
        hint.clone_into(&mut self.hint);
        self
    }

    /// `22023`: an argument that is wrong in another way, or does not go with another one.
    pub(crate) fn argument(message: &str, detail: &str, hint: &str) -> Self {
        Refusal::new("22023", message.to_owned(), detail.to_owned(), hint)
    }

    /// `22023`: a performance cannot end as one that goes on.
    pub(crate) fn no_end() -> Self {
        Refusal::new(
            "22023",
            "argument \"status_code\" is not valid".to_owned(),
            "A task in progress is not returned with the code \"in-progress\"; there are \"pending\", \"in-progress\", \
             \"aborted\" and \"completed\"."
                .to_owned(),
            "Use \"completed\", \"aborted\", or \"pending\" for another try; what there is to say about it is the status. \
             To keep the task, use taskq.extend_tasks_ownership() or taskq.report_status().",
        )
    }

    /// `54000`: more than is allowed, refused before it costs anything.
    pub(crate) fn too_large(what: &str, detail: &str, hint: &str) -> Self {
        Refusal::new("54000", what.to_owned(), detail.to_owned(), hint)
    }

    /// `22004`: all arguments that could say what is meant are NULL.
    pub(crate) fn nothing_asked_for(argument: &str) -> Self {
        Refusal::new(
            "22004",
            format!("neither \"{argument}\" nor a filter is given"),
            "Without any of them the call would be about every task of the queue.".to_owned(),
            "Give ids, or a filter; a pattern of '%' in \"status_like\", for one, fits every task with a status.",
        )
    }

    /// `22004`: the same of tasks in progress.
    pub(crate) fn nothing_to_release() -> Self {
        Refusal::new(
            "22004",
            "none of \"task_ids\", \"actors\" and \"actions\" is given".to_owned(),
            "Without any of them the call would be about every task in progress.".to_owned(),
            "Give the actors that are dead (see taskq.actors), ids, or actions.",
        )
    }

    /// `22004`: bodies in neither of the two ways.
    pub(crate) fn no_bodies() -> Self {
        Refusal::new(
            "22004",
            "argument \"bodies\" must not be NULL".to_owned(),
            "Neither \"bodies\" nor \"bodies_json\" is given.".to_owned(),
            "Give the bodies in one of the two arrays, with a NULL for each task without a body.",
        )
    }

    /// `22004`: NULL where it may not be.
    pub(crate) fn null_argument(argument: &str) -> Self {
        Refusal::new(
            "22004",
            format!("argument \"{argument}\" must not be NULL"),
            format!("NULL was given for \"{argument}\", or for an element of it."),
            match argument {
                "actions" => "Give an array with the names of actions.",
                "task_ids" => "Give an array with the ids of tasks.",
                "tokens" => "Give an array with the performance tokens, one for each id.",
                _ => "Give a value.",
            },
        )
    }
}

/// An argument that may not be NULL.
pub(crate) fn required<T>(argument: &str, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| Refusal::null_argument(argument))
}

/// What is wrong with something, as a sentence.
pub(crate) fn sentence(what: &str) -> String {
    let what = shortened(what);
    let mut letters = what.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

/// The ids along a path, as many as fit on a line of a log; of a long one the beginning and the end.
fn shown_path(path: &[String]) -> String {
    const MOST: usize = 12;
    let shown = |ids: &[String]| ids.iter().map(|id| shortened(id)).collect::<Vec<_>>().join(" -> ");
    if path.len() <= MOST {
        return shown(path);
    }
    let (head, tail) = (&path[..MOST / 2], &path[path.len() - MOST / 2..]);
    format!("{} -> ... {} more ... -> {}", shown(head), path.len() - MOST, shown(tail))
}

/// A text from the caller, short enough for a message: no refusal repeats more of what it was given than a line.
pub(crate) fn shortened(text: &str) -> String {
    first_of(text, 300)
}

/// So many characters of it.
fn first_of(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
