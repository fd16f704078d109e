//! `maintain`: upkeep for quiet times, when nobody claims tasks.

use pgrx::pg_sys::TIMESTAMPTZOID;
use pgrx::prelude::*;

use crate::pg::clock;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, args};
use crate::schedules::fire_due;
use crate::settle::fold;
use crate::upkeep::{STEP, due, leases, retention};

/// `taskq.maintain() -> bigint`
#[pg_extern(sql = "")]
fn taskq_maintain() -> i64 {
    maintain()
}

/// Actions that have something due: from one to the next along the index, not by way of all actions.
static DUE_ACTIONS: Statement = Statement::new(
    c"WITH RECURSIVE actions AS (
        (SELECT s.action_no FROM taskq.scheduled s ORDER BY s.action_no LIMIT 1)
        UNION ALL
        SELECT (SELECT s.action_no FROM taskq.scheduled s
                 WHERE s.action_no > a.action_no ORDER BY s.action_no LIMIT 1)
          FROM actions AS a WHERE a.action_no IS NOT NULL)
      SELECT a.action_no FROM actions AS a
       WHERE EXISTS (SELECT FROM taskq.scheduled s WHERE s.action_no = a.action_no AND s.due <= $1 OFFSET 0)",
    &[TIMESTAMPTZOID],
);

/// Does all that is due, in steps, and returns how many steps found something to do. What other
/// transactions hold is left to them.
fn maintain() -> i64 {
    let now = clock::now();
    let mut steps = 0;
    while fire_due(STEP, now) {
        check_for_interrupts();
        steps += 1;
    }
    let mut more = true;
    while more {
        check_for_interrupts();
        let elapsed = leases::elapsed(STEP, now);
        steps += i64::from(elapsed.changed);
        more = elapsed.more;
    }
    let action_nos: Vec<i32> = DUE_ACTIONS.query(args![now], |row| row.need(1));
    more = !action_nos.is_empty();
    while more {
        check_for_interrupts();
        let released = due::release(&action_nos, STEP, now);
        steps += i64::from(released.changed);
        more = released.more;
    }
    while fold::some(STEP, now) {
        check_for_interrupts();
        steps += 1;
    }
    loop {
        check_for_interrupts();
        let removed = retention::sweep(STEP, now);
        steps += i64::from(removed > 0);
        if removed < STEP as usize {
            return steps;
        }
    }
}
