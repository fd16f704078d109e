//! Arguments that cannot be meant.

use super::text::{first_of, shortened};
use super::{Refusal, TOO_LARGE};

/// How many characters of a value are in the message, which may be all that a log has; DETAIL has more of it.
const IN_A_LINE: usize = 100;

impl Refusal {
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

    /// `22023`: an argument out of range.
    pub(crate) fn out_of_range(argument: &str, value: &str, hint: &str) -> Self {
        let message = format!("argument \"{argument}\" is out of range: {}", first_of(value, IN_A_LINE));
        Refusal::new("22023", message, format!("The value is {}.", shortened(value)), hint)
    }

    /// `22023`: an argument that is not valid; `value` says what it is.
    pub(crate) fn not_valid(argument: &str, value: &str, hint: &str) -> Self {
        let message = format!("argument \"{argument}\" is not valid: {}", first_of(value, IN_A_LINE));
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

    /// `22023`: an argument that is wrong in another way, or does not go with another one.
    pub(crate) fn argument(message: &str, detail: &str, hint: &str) -> Self {
        Refusal::new("22023", message.to_owned(), detail.to_owned(), hint)
    }

    /// `22023`: a performance cannot end as one that goes on.
    pub(crate) fn no_end() -> Self {
        Refusal::new(
            "22023",
            "argument \"status_code\" is not valid: \"in-progress\"".to_owned(),
            "A task in progress is not returned with the code \"in-progress\"; there are \"pending\", \"in-progress\", \
             \"aborted\" and \"completed\"."
                .to_owned(),
            "Use \"completed\", \"aborted\", or \"pending\" for another try; what there is to say about it is the status. \
             To keep the task, use taskq.extend_tasks_ownership() or taskq.report_status().",
        )
    }

    /// `54000`: more than is allowed.
    pub(crate) fn too_large(what: &str, detail: &str, hint: &str) -> Self {
        Refusal::new(TOO_LARGE, what.to_owned(), detail.to_owned(), hint)
    }

    /// `54000`: a value of so many bytes, where so many are allowed.
    pub(crate) fn too_long(what: &str, bytes: usize, most: usize) -> Self {
        Refusal::too_large(
            &format!("{what} is too large"),
            &format!("It has {bytes} bytes as text, {most} are allowed."),
            "Keep large values in a table of your own or an object store, and hand on where they are.",
        )
    }

    /// `54000`: the same of a value that is beside others of the same task.
    pub(crate) fn too_long_together(what: &str, bytes: usize, others: i64, most: usize) -> Self {
        Refusal::too_large(
            &format!("{what} is too large beside what the task has already"),
            &format!(
                "It has {bytes} bytes as text, the task {others} more; {most} are allowed of body, result, checkpoint and metadata together."
            ),
            "Keep large values in a table of your own or an object store, and hand on where they are.",
        )
    }

    /// `54000`: the result with which a task is returned, alone or beside what the task has.
    pub(crate) fn result_too_large(id: &str, bytes: usize) -> Self {
        Refusal::too_large(
            &format!("the result of task \"{}\" is too large", shortened(id)),
            &format!(
                "It has {bytes} bytes as text. 64 MB are allowed, and 128 MB of body, result, checkpoint and metadata together."
            ),
            "The task is still held. Keep the result in a table of your own or an object store, and return where it is.",
        )
    }

    /// `22004`: all arguments that could say which tasks are meant are NULL.
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
