//! Rows that contradict others, such as a task that has ended and is in progress as well. They come from a defect, from a hand
//! or from a damaged disk; `taskq.check()` looks for such.
//!
//! **One of them must not stop the queue.** A call that claims tasks does upkeep for others, too, and would fail with such a row again
//! and again. So upkeep does such a step in a subtransaction ([`leaving`]), unless the transaction has begun too many. If that fails
//! because of what is stored, the step is done with one half of the tasks, and then with the other, until what fails is one task.
//! That one is left as it is by this backend for a minute; some callers put its row off as well, for the others. The server's log has
//! it once a session.

use std::time::Duration;

use crate::memory::{Belief, Memory, Remembered};
use crate::number::TaskNo;
use crate::pg::subtransaction::{has_room_for_one, unless_rows_are_wrong};
use crate::pg::throw;
use crate::store::numbers;

/// For how long a task is left alone; by this backend, as [`Belief::Left`] says.
pub(crate) const LEAVE: Duration = Duration::from_secs(60);

/// As long as a backend leaves more tasks alone than this, it writes nothing of further ones to the log.
const MOST_TASKS_LOGGED: usize = 200;

/// The tasks that this backend has met, and leaves alone.
static LEFT: Memory<Remembered<TaskNo, ()>> = Memory::of(Belief::Left);

/// Whether this backend leaves the task alone.
pub(crate) fn is_left(task_no: TaskNo) -> bool {
    LEFT.with(|left| !left.is_empty() && left.get(&task_no).is_some())
}

/// What came of a step.
pub(crate) struct Done<R> {
    /// For each part of the tasks with which it came to its end.
    pub(crate) parts: Vec<R>,
    /// Tasks that were left as they are.
    pub(crate) left: Vec<TaskNo>,
}

/// Does a step with the tasks: with all at once if none of them stands in the way of that.
///
/// The step locks what it changes. What was locked before its subtransaction, and is changed in that, gets a list of its own of
/// who has it locked.
pub(crate) fn leaving<T: Copy, R>(
    all: &[T],
    number: impl Fn(&T) -> TaskNo,
    step: impl Fn(&[T]) -> R,
) -> Done<R> {
    let mut done = Done { parts: Vec::new(), left: Vec::new() };
    let rest: Vec<T> = all.iter().copied().filter(|one| !is_left(number(one))).collect();
    done.left.extend(all.iter().map(&number).filter(|task_no| is_left(*task_no)));
    let mut parts = if rest.is_empty() { vec![] } else { vec![rest.as_slice()] };
    while let Some(part) = parts.pop() {
        match (carefully(|| step(part)), part) {
            (Ok(result), _) => done.parts.push(result),
            (Err(why), [one]) => {
                leave(number(one), &why);
                done.left.push(number(one));
            }
            (Err(_), _) => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
        }
    }
    done
}

/// In a subtransaction, unless this transaction has begun many: beyond some of them every snapshot of the server costs more, and
/// a loop in one transaction would take ever longer. What fails then fails the call.
fn carefully<R>(step: impl FnOnce() -> R) -> Result<R, String> {
    if has_room_for_one() { unless_rows_are_wrong(step) } else { Ok(step()) }
}

/// Leaves a task alone from here on, and writes that to the log, unless it was written before or of very many tasks.
fn leave(task_no: TaskNo, why: &str) {
    let (is_new, number) = LEFT.with(|left| {
        let is_new = !left.note(task_no, ());
        if left.len() > MOST_TASKS_LOGGED {
            left.tidy();
        }
        (is_new, left.len())
    });
    if !is_new || number > MOST_TASKS_LOGGED {
        return;
    }
    let ids = numbers::ids(&[task_no]);
    let id = ids.get(&task_no).map_or("none", String::as_str);
    throw::log(
        &format!(
            "taskq leaves task number {task_no} (id \"{id}\") as it is: its rows contradict each other, or those of others"
        ),
        why,
        "SELECT * FROM taskq.check() names such rows.",
    );
}
