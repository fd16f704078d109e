//! What a refusal says of the task that is in the way: a caller that inserts an id a second time may not know
//! that the first one is long done and only kept; and a worker that returns with an old token may not know what became
//! of the task.

use std::time::Duration;

use crate::clock;
use crate::error::{Refusal, shortened};
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, record};
use crate::rights::{self, Doing};

record! {
    struct Row {
        state: String,
        status: Option<String>,
        actor: Option<String>,
        settled_at: Option<Time>,
        /// It is kept for ever, if it has settled.
        for_ever: Option<bool>,
        /// Until when it is kept.
        kept: Option<String>,
        /// Not owned before.
        due: Option<String>,
    }
}

/// A refusal is not in a hurry: the view knows what the state is.
static STANDING: Statement<&str, Row> = Statement::new(
    c"SELECT v.state, v.status, v.actor_id, v.settled_at, (s.expires_at = 'infinity') AS for_ever,
             pg_catalog.date_trunc('second', NULLIF(s.expires_at, 'infinity'))::pg_catalog.text,
             pg_catalog.date_trunc('second', NULLIF(v.not_before, 'infinity'))::pg_catalog.text
        FROM taskq.tasks v
       CROSS JOIN LATERAL (SELECT t.task_no FROM taskq.task t WHERE t.id = $1 OFFSET 0) AS t
        LEFT JOIN LATERAL (SELECT s.expires_at FROM taskq.settled s WHERE s.task_no = t.task_no OFFSET 0) AS s ON true
       WHERE v.id = $1",
);

/// How a task stands, behind "it" or its name.
struct Standing {
    what: String,
    /// It has settled: until when it is kept, and why it is as it is.
    settled: Option<(String, Option<String>)>,
}

impl Standing {
    fn sentence(&self) -> String {
        match &self.settled {
            Some((kept, _)) => format!("It {} and is kept {kept}.", self.what),
            None => format!("It {}.", self.what),
        }
    }
}

/// How the task with this id stands, in a sentence, for a caller whom that concerns.
pub(crate) fn told(id: &str, doing: Doing) -> Option<String> {
    standing(id).filter(|_| rights::may_hear_of(doing, id)).map(|Standing { what, settled }| {
        let why = settled.and_then(|(_, status)| status);
        format!("The task {what}{}.", why.map(|why| format!(": \"{}\"", shortened(&why))).unwrap_or_default())
    })
}

/// `None` if the task is not to be seen (any more).
fn standing(id: &str) -> Option<Standing> {
    let now = clock::now();
    STANDING.first(id).map(|task| {
        let state = task.state;
        let Some(settled_at) = task.settled_at else {
            let actor = task.actor.map(|actor| format!(", owned by \"{}\"", shortened(&actor)));
            let due = task.due.filter(|_| state == "scheduled").map(|due| format!(" for {due}"));
            return Standing {
                what: format!("is {state}{}", actor.or(due).unwrap_or_default()),
                settled: None,
            };
        };
        let ended = if state == "completed" { "completed" } else { "was aborted" };
        let kept = match task.kept {
            Some(until) if task.for_ever == Some(false) => format!("until {until}"),
            _ => "for ever".to_owned(),
        };
        Standing {
            what: format!("{ended} {}", ago(settled_at.until(now))),
            settled: Some((kept, task.status)),
        }
    })
}

/// How the task stands, for a caller who inserts and may hear of it.
fn heard(id: &str) -> Option<Standing> {
    standing(id).filter(|_| rights::may_hear_of(Doing::Insert, id))
}

/// `TQ002`: a task with this id exists, and so do `more` others of the call.
pub(super) fn exists(id: &str, more: usize) -> Refusal {
    let others =
        if more > 0 { format!(" {more} more tasks of this call exist already.") } else { String::new() };
    match heard(id) {
        Some(standing) if standing.settled.is_some() => Refusal::exists(
            id,
            &format!("{}{others}", standing.sentence()),
            "An id is free again when its task is gone. Use on_conflict => 'skip' to leave such tasks alone, \
             replace_tasks to run them anew, or unique_by instead of the id to keep out doubles of what is under way.",
        ),
        standing => Refusal::exists(
            id,
            &format!("{}{others}", standing.map_or("It is in the queue.".to_owned(), |s| s.sentence())),
            "Use on_conflict => 'skip' to leave existing tasks alone, or replace_tasks to replace them.",
        ),
    }
}

/// `TQ002`: the key of a unique task is held by another one of the queue.
pub(super) fn key_held(action: &str, key: &str, id: &str) -> Refusal {
    let sentence = heard(id).map_or("It is in the queue.".to_owned(), |s| s.sentence());
    Refusal::key_held(action, key, id, &sentence)
}

/// How long ago something was, in words; the past may be a moment ahead of a clock that was read before.
fn ago(past: Duration) -> String {
    let seconds = past.as_secs();
    let (number, unit) = match seconds {
        ..1 => return "just now".to_owned(),
        1..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{} ago", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{Time, ago};

    #[test]
    fn times_are_told_as_people_tell_them() {
        for (seconds, text) in [
            (-5, "just now"),
            (0, "just now"),
            (1, "1 second ago"),
            (119, "119 seconds ago"),
            (190, "3 minutes ago"),
            (7_200, "2 hours ago"),
            (200_000, "2 days ago"),
        ] {
            assert_eq!(ago(Time(0).until(Time(seconds * 1_000_000))), text);
        }
    }
}
