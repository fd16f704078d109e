//! `maintain`: upkeep for quiet times, when no worker claims tasks; `recount`: what has settled is summed up anew.

use std::time::Duration;

use pgrx::prelude::*;

use crate::clock;
use crate::error::{Result, or_throw};
use crate::pg::session::check_for_interrupts;
use crate::store::seal;
use crate::upkeep::steps::{KINDS, step};

/// `taskq.maintain() -> bigint`
#[pg_extern(sql = "")]
fn taskq_maintain() -> i64 {
    or_throw(maintain())
}

/// `taskq.recount() -> void`
#[pg_extern(sql = "")]
fn taskq_recount() {
    seal::begin_anew();
}

/// Does what is due, in steps, and returns how many steps found something to do, sealing aside. What other transactions hold is
/// left to them.
fn maintain() -> Result<i64> {
    let now = clock::now();
    let mut steps = 0;
    for kind in KINDS {
        let mut more = true;
        while more {
            check_for_interrupts();
            let step = step(kind, Duration::ZERO, now)?;
            steps += i64::from(step.done);
            more = step.more;
        }
    }
    Ok(steps)
}
