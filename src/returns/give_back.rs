//! Returns for another try.

use super::end::GivenBack;
use super::taken::{Code, Returned, take};
use super::tries::{Allowed, TryEnd};
use crate::flow::actions::backoffs;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::settle::merge_keys;
use crate::settle::settle;
use crate::state::Outcome;
use crate::store::live::Live;
use crate::store::{attempts, progress, ready};

/// Puts tasks back at the end of their priority, or into `scheduled` until their time comes; those that have no try left
/// are aborted, unless their try does not count.
pub(super) fn give_back(giving: &[Returned<&GivenBack>], now: Time) -> Vec<Code> {
    if giving.is_empty() {
        return Vec::new();
    }
    // New positions are taken below: the transaction needs its id before.
    assign_transaction_id();
    let gone = take(giving);
    let good = giving.iter().filter_map(|one| Some((one.at, gone.of(one)?, one.how)));
    let (at, ended): (Vec<usize>, Vec<(&Live, &GivenBack)>) =
        good.map(|(at, live, how)| (at, (live, how))).unzip();
    at.into_iter().zip(end_tries(&ended, now)).collect()
}

/// Ends tries whose rows are removed from `run`; the codes that the tasks have from then on.
pub(super) fn end_tries(ended: &[(&Live, &GivenBack)], now: Time) -> Vec<&'static str> {
    let allowed = Allowed::of(ended.iter().map(|(live, back)| (*live, back.how)));
    // The others say when, or come back at once.
    let by_backoff = ended.iter().filter(|(_, back)| back.retry_after.is_none() && back.counts());
    let backoffs = backoffs(&by_backoff.map(|(live, _)| (live.task_no, live.tries)).collect::<Vec<_>>());
    let mut codes = Vec::with_capacity(ended.len());
    let (mut endings, mut ready, mut later, mut reports) = (vec![], vec![], vec![], vec![]);
    let (mut tries, mut going_on) = (Vec::new(), Vec::new());
    for (live, back) in ended {
        let GivenBack { status, retry_after, how } = back;
        if let Some(ending) = allowed.end(live, *how, status.as_deref()) {
            codes.push(Outcome::Aborted.name());
            // The history says how this try ended, not only how the task did.
            if *how == TryEnd::Revoked {
                tries.push((*live, ending.status.clone(), how.outcome()));
            }
            endings.push(ending);
            continue;
        }
        codes.push("pending");
        tries.push((*live, status.clone(), how.outcome()));
        going_on.push(*live);
        if let Some(status) = status {
            reports.push((live.task_no, status.clone()));
        }
        let freed = back.freed(live);
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
    attempts::record(tries, now);
    merge_keys::given_back(going_on);
    settle(endings, now);
    codes
}
