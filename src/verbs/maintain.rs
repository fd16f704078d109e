//! `maintain`: upkeep for quiet times, when no worker claims tasks; `recount`: what has settled is summed up anew.

use std::time::Duration;

use pgrx::prelude::*;

use crate::clock;
use crate::pg::session::check_for_interrupts;
use crate::store::seal;
use crate::upkeep::Kind;
use crate::upkeep::steps::{Reach, step};

/// `taskq.maintain() -> bigint`
#[pg_extern(sql = "")]
fn taskq_maintain() -> i64 {
    maintain()
}

/// `taskq.recount() -> void`
#[pg_extern(sql = "")]
fn taskq_recount() {
    seal::begin_anew();
}

/// Does what is due, in steps, and returns how many steps found something to do, sealing aside. What other transactions hold is
/// left to them.
fn maintain() -> i64 {
    let (now, reach) = (clock::now(), Reach::all(Duration::ZERO));
    let mut steps = 0;
    for kind in Kind::ALL {
        let mut more = true;
        while more {
            check_for_interrupts();
            let step = step(kind, &reach, now);
            steps += i64::from(step.done);
            more = step.more;
        }
    }
    steps
}
