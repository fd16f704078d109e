//! Returns for another try.

use super::{Code, GivenBack, Returned, take};
use crate::flow::actions::{backoffs, try_limits};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::settle::{Ending, settle};
use crate::state::{Cause, Outcome};
use crate::store::live::Live;
use crate::store::progress;
use crate::store::ready;
use crate::store::{attempts, merge_key};

/// Puts tasks back at the end of their priority, or aside until their time comes; those that have no try
/// left are aborted.
pub(super) fn give_back(giving: &[Returned<&GivenBack>], now: Time) -> Vec<Code> {
    if giving.is_empty() {
        return Vec::new();
    }
    // New positions are taken below: the transaction needs its id before.
    assign_transaction_id();
    let gone = take(giving);
    let good: Vec<(&Returned<&GivenBack>, &Live)> =
        giving.iter().filter_map(|one| Some((one, gone.of(one)?))).collect();
    let limits = try_limits(&good.iter().map(|(_, live)| live.task_no).collect::<Vec<_>>());
    // The others say when.
    let by_backoff = good.iter().filter(|(one, _)| one.how.retry_after.is_none());
    let backoffs = backoffs(&by_backoff.map(|(_, live)| (live.task_no, live.tries)).collect::<Vec<_>>());
    let mut codes: Vec<Code> = Vec::with_capacity(good.len());
    let (mut endings, mut ready, mut later, mut reports) = (vec![], vec![], vec![], vec![]);
    let (mut holders, mut ended) = (Vec::new(), Vec::new());
    for (one, live) in good {
        let GivenBack { status, retry_after } = one.how;
        let max = limits.get(&live.task_no).and_then(|limits| limits.max_tries);
        if let Some(max) = max.filter(|max| live.tries >= *max) {
            codes.push((one.at, Outcome::Aborted.name()));
            let status = status.clone().unwrap_or_else(|| format!("all {max} tries are used up"));
            endings.push(Ending::abort(live, Cause::Exhausted, Some(status)));
            continue;
        }
        codes.push((one.at, "pending"));
        ended.push((live, status.clone()));
        if live.keyed {
            holders.push(live.task_no);
        }
        if let Some(status) = status {
            reports.push((live.task_no, status.clone()));
        }
        let freed = live.freed();
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
    ready::schedule(later.into_iter());
    attempts::record(&ended, "pending", now);
    merge_key::given_back(&holders);
    settle(endings, now);
    codes
}
