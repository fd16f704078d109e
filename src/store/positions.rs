//! The sequence that numbers of tasks and positions come from.

use pgrx::pg_sys::Oid;

use crate::error::{Refusal, Result};
use crate::number::{FIRST_WAIT, Position, TaskNo, WaitNo};
use crate::pg::named::Named;
use crate::pg::sequence;
use crate::pg::session::{assign_transaction_id, check_for_interrupts};
use crate::token;

/// `count` new numbers for tasks, ascending. The transaction has its id before it takes them.
pub(crate) fn take(count: usize) -> Result<Vec<TaskNo>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    assign_transaction_id();
    let mut numbers = Vec::with_capacity(count);
    for _ in 0..count {
        check_for_interrupts();
        numbers.push(TaskNo(sequence::next(&POSITIONS)));
    }
    match numbers.last() {
        Some(last) if !token::is_for_tasks(last.0) => Err(Refusal::no_more_numbers(token::shard_of(last.0))),
        _ => Ok(numbers),
    }
}

/// A number for a wait: no other wait has it, of those that the same task may have had lately. An end that is on its way to an earlier
/// one would have to stay so while four thousand million positions are taken.
pub(crate) fn new_wait() -> WaitNo {
    assign_transaction_id();
    loop {
        // The lower half: the upper one, in which the shard is, changes only after 2^32 positions.
        let wait_no = sequence::next(&POSITIONS) as WaitNo;
        if wait_no != FIRST_WAIT {
            return wait_no;
        }
    }
}

/// The shard that this queue is: that in whose range the sequence stands.
pub(crate) fn shard() -> i32 {
    token::shard_of(sequence::last_value(&POSITIONS))
}

/// Numbers of tasks and positions come from here.
pub(super) static POSITIONS: Named = Named::new(c"position_seq");

/// The last position that was taken.
pub(super) fn last_position() -> Position {
    Position(sequence::last_value(&POSITIONS))
}

/// The file of the sequence of positions.
pub(super) fn file_of_positions() -> Oid {
    sequence::file_of(&POSITIONS)
}
