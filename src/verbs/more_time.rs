//! More time for performances: what is held in time is extended, what comes late is held again if it can be.

use std::collections::HashMap;

use pgrx::datum::Interval;

use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::statement::{Statement, record};
use crate::store::reason::MergeKey;
use crate::store::run::{self, changes};
use crate::store::slot::{self, Ask, Assignment, Limit};
use crate::store::{lease, merge_key};
use crate::token::{Base, Nonce, Token, in_pieces};

/// Gives performances that are held, or can be held again, time until then, or for as long as a try may last; which these are, and
/// their deadlines then.
pub(super) fn more_time(
    tokens: &[Token],
    deadline: Time,
    actor_id: &str,
    now: Time,
) -> HashMap<TaskNo, (Nonce, Time)> {
    if tokens.is_empty() {
        return HashMap::new();
    }
    let in_time = run::extend(tokens.iter().map(|token| token.pair()).collect(), deadline, actor_id, now);
    lease::leave(&in_time.iter().map(|extended| extended.left).collect::<Vec<_>>());
    let mut extended: HashMap<TaskNo, (Nonce, Time)> =
        in_time.iter().map(|one| (one.left.task_no, (one.left.nonce, one.deadline))).collect();
    let late: Vec<&Token> = tokens.iter().filter(|t| !extended.contains_key(&t.task_no)).collect();
    if !late.is_empty() {
        extended.extend(hold_again(&late, deadline, actor_id, now));
    }
    let mut by_base: HashMap<Base, Vec<_>> = HashMap::new();
    for (task_no, (its_nonce, deadline)) in &extended {
        by_base.entry(its_nonce.base(*task_no)).or_default().push((*deadline, *task_no));
    }
    for (base, tasks) in by_base {
        lease::record(&tasks, base);
    }
    extended
}

record! {
    /// A row of [`LATE`].
    struct InQueue {
        task_no: TaskNo,
        nonce: Nonce,
        action_no: i32,
        granted_at: Option<Time>,
        max_run_time: Option<Interval>,
        action: String,
        /// The limit of the action.
        of_action: Option<i32>,
        merge_key: Option<String>,
        /// Empty: none.
        group: String,
        /// The limit of the action for each group.
        per_group: Option<i32>,
        /// The limit of the group.
        of_group: Option<i32>,
    }
}

/// Tasks whose deadline has passed, back in the queue or parked in place, and not granted since.
static LATE: Statement<(&[TaskNo], &[Nonce]), InQueue> = Statement::new(
    c"SELECT r.task_no, r.nonce, r.action_no, r.granted_at, r.max_run_time, a.name, s.max_concurrency, t.merge_key, COALESCE(t.group_id, ''), s.max_per_group,
             (SELECT g.max_concurrency FROM taskq.task_group g WHERE g.group_id = t.group_id)
        FROM taskq.run r
       CROSS JOIN LATERAL (SELECT t.merge_key, t.group_id FROM taskq.task t WHERE t.task_no = r.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = r.action_no OFFSET 0) AS a
        LEFT JOIN LATERAL (SELECT s.max_concurrency, s.max_per_group FROM taskq.action_setting s
                            WHERE s.name = a.name OFFSET 0) AS s ON true
       WHERE r.task_no = ANY ($1) AND r.nonce = ANY ($2) AND (r.grantable OR r.aside IS NOT NULL)
       ORDER BY r.task_no FOR NO KEY UPDATE OF r",
);

/// Lets workers that come late hold their tasks again, where that breaks no limit: what the performance had
/// occupied was given up when its deadline had ended it, and another task may have it by now.
fn hold_again(late: &[&Token], deadline: Time, actor_id: &str, now: Time) -> Vec<(TaskNo, (Nonce, Time))> {
    let pieces = in_pieces(late.iter().map(|token| token.pair()));
    let look = |(task_nos, nonces)| LATE.map((task_nos, nonces), |row| Late::of(row, deadline, now));
    let rows: Vec<Late> = pieces.into_iter().flat_map(look).flatten().collect();
    // Others may have found a slot locked that is not used in the end, or could not make one meanwhile.
    rows.iter().flat_map(|late| &late.asks).for_each(|ask| slot::wake(&ask.limit));
    rows.into_iter()
        .filter(|late| {
            let Some(slots) = late.slots() else { return false };
            if let Some(key) = &late.key
                && !merge_key::take_alone(key, late.task_no)
            {
                return false;
            }
            slot::occupy(&slots);
            changes::HOLD_AGAIN.execute((late.task_no, late.until, actor_id, !slots.is_empty()));
            true
        })
        .map(|late| (late.task_no, (late.nonce, late.until)))
        .collect()
}

/// A task whose deadline has passed, and the limits that it is subject to.
struct Late {
    task_no: TaskNo,
    nonce: Nonce,
    /// Its new deadline.
    until: Time,
    key: Option<MergeKey>,
    asks: Vec<Ask>,
}

impl Late {
    /// `None` if its try has lasted as long as it may.
    fn of(row: InQueue, deadline: Time, now: Time) -> Option<Late> {
        let granted = (row.granted_at, deadline);
        let until = run::within_run_time(granted, row.max_run_time, row.action_no, now)?;
        let InQueue { action, group, .. } = &row;
        let of_group = |limit: fn(&str, &str) -> Limit| (!group.is_empty()).then(|| limit(action, group));
        let limits = [
            (Some(Limit::of_action(action)), row.of_action),
            (of_group(Limit::per_group), row.per_group),
            (of_group(|_, group| Limit::of_group(group)), row.of_group),
        ];
        Some(Late {
            task_no: row.task_no,
            nonce: row.nonce,
            until,
            key: MergeKey::of(action, Some(group), row.merge_key.as_deref()),
            asks: limits
                .into_iter()
                .filter_map(|(limit, most)| Some(Ask { limit: limit?, most: most?, wanted: 1 }))
                .collect(),
        })
    }

    /// A slot of each of its limits; `None` if there is none to be had of one of them. Waits for no lock.
    fn slots(&self) -> Option<Vec<Assignment<'_>>> {
        let free = slot::lock_free(&self.asks).slots;
        let slots = self.asks.iter().zip(free).map(|(ask, free)| {
            Some(Assignment { limit: &ask.limit, position: *free.first()?, task_no: self.task_no })
        });
        slots.collect()
    }
}
