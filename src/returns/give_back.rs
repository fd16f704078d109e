//! Returns for another try.

use std::collections::HashMap;

use super::{Codes, Entry, Return, take};
use crate::flow::actions::{backoffs, try_limits};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::settle::{Ending, settle};
use crate::state::{Cause, Outcome};
use crate::store::live::{Live, Place};
use crate::store::progress;
use crate::store::ready::{self, Freed};
use crate::store::{attempts, merge_key};
use crate::token::Token;

/// Those of the tasks whose next try waits for the back-off, with their number of tries.
fn waiting(giving: &[(usize, Token)], returns: &[Entry], gone: &HashMap<TaskNo, Live>) -> Vec<(TaskNo, i32)> {
    giving
        .iter()
        .filter(|(i, _)| matches!(returns[*i].2, Return::GiveBack { retry_after: None, .. }))
        .filter_map(|(_, token)| gone.get(&token.task_no))
        .map(|live| (live.task_no, live.tries))
        .collect()
}

/// Puts tasks back at the end of their priority, or aside until their time comes; those that have no try
/// left are aborted.
pub(super) fn give_back(giving: &[(usize, Token)], returns: &[Entry], now: Time, codes: &mut Codes) {
    if giving.is_empty() {
        return;
    }
    // New positions are taken below: the transaction needs its id before.
    assign_transaction_id();
    let gone = take(giving);
    let task_nos: Vec<TaskNo> = gone.keys().copied().collect();
    let limits = try_limits(&task_nos);
    let backoffs = backoffs(&waiting(giving, returns, &gone));
    let (mut endings, mut ready, mut later, mut reports) = (vec![], vec![], vec![], vec![]);
    let (mut holders, mut ended) = (Vec::new(), Vec::new());
    for (i, token) in giving {
        let Return::GiveBack { status, retry_after } = &returns[*i].2 else { continue };
        let Some(live) = gone.get(&token.task_no).filter(|l| l.place == Place::Run { nonce: token.nonce })
        else {
            continue;
        };
        let max = limits.get(&live.task_no).and_then(|limits| limits.max_tries);
        if let Some(max) = max.filter(|max| live.tries >= *max) {
            codes.insert(*i, Outcome::Aborted.name());
            let status = status.clone().unwrap_or_else(|| format!("all {max} tries are used up"));
            endings.push(Ending::abort(live, Cause::Exhausted, Some(status)));
            continue;
        }
        codes.insert(*i, "pending");
        ended.push((live, status.clone()));
        if live.keyed {
            holders.push(live.task_no);
        }
        if let Some(status) = status {
            reports.push((live.task_no, status.clone()));
        }
        let freed = Freed {
            task_no: live.task_no,
            tries: live.tries,
            failures: live.failures,
            dependencies: live.dependencies,
            not_before: None,
        };
        let due = match retry_after {
            Some(interval) => Some(now.plus(*interval)),
            None => backoffs.get(&live.task_no).map(|delay| now + *delay),
        };
        match due.filter(|due| *due > now) {
            Some(due) => later.push((freed, due)),
            None => ready.push(freed),
        }
    }
    if !reports.is_empty() {
        let (task_nos, statuses): (Vec<TaskNo>, Vec<String>) = reports.into_iter().unzip();
        progress::SET_STATUS.execute((task_nos, statuses));
    }
    ready::make_ready(&ready);
    ready::schedule(&later);
    attempts::record(&ended, "pending", now);
    merge_key::given_back(&holders);
    settle(endings, now);
}
