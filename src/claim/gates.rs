//! What may keep a single entry from running: its group is paused, its workgroup held back, its merge key
//! busy. Such an entry was taken by the claim a moment ago, in this transaction; it is moved to where it
//! costs later claims nothing, and comes back, at a new position, when the reason ends.
//!
//! **Nothing is stranded.** An entry is parked only under a lock on the row that holds the reason (its group,
//! its key). Whoever ends the reason changes that row first, so he waits for us and then sees what we
//! parked, or we find the row locked or changed. If it is locked we do not wait: the entry goes to the end
//! of its priority and is met again by a later call.

use std::collections::{HashMap, HashSet};

use pgrx::pg_sys::{INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID};

use super::{Claim, Grant, merge};
use crate::pg::clock::Time;
use crate::pg::session::assign_transaction_id;
use crate::pg::statement::{Statement, args};
use crate::store::parked::{self, Parked, Reason};
use crate::store::ready::{self, Freed};

/// Where an entry goes that may not run now.
enum Way {
    Park(Reason),
    Requeue,
    Schedule(Time),
}

static PAUSED: Statement = Statement::new(
    c"SELECT g.group_id FROM taskq.task_group g WHERE g.group_id = ANY ($1) AND g.paused",
    &[TEXTARRAYOID],
);
static STILL_PAUSED: Statement = Statement::new(
    c"SELECT g.group_id FROM taskq.task_group g WHERE g.group_id = ANY ($1) AND g.paused
       ORDER BY g.group_id FOR SHARE SKIP LOCKED",
    &[TEXTARRAYOID],
);
static HELD_BACK: Statement = Statement::new(
    c"SELECT w.name, w.not_before FROM taskq.workgroup w WHERE w.name = ANY ($1) AND w.not_before > $2",
    &[TEXTARRAYOID, TIMESTAMPTZOID],
);
static REMOVE: Statement =
    Statement::new(c"DELETE FROM taskq.run r WHERE r.task_no = ANY ($1)", &[INT8ARRAYOID]);

static GIVE_BACK: Statement = Statement::new(
    c"UPDATE taskq.run r
         SET nonce = r.prev_nonce, grantable = true, limited = false, tries = r.tries - 1, deadline = $2,
             position = pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass)
       WHERE r.task_no = ANY ($1)",
    &[INT8ARRAYOID, TIMESTAMPTZOID],
);

/// Those of the entries that may run now.
pub(super) fn admit(claim: &mut Claim, taken: Vec<Grant>) -> Vec<Grant> {
    let names = |of: fn(&Grant) -> Option<&String>| -> Vec<String> {
        taken.iter().filter_map(of).collect::<HashSet<_>>().into_iter().cloned().collect()
    };
    let groups = names(|g| g.group_id.as_ref());
    let paused: Vec<String> =
        if groups.is_empty() { vec![] } else { PAUSED.query(args![groups], |r| r.need(1)) };
    let locked: HashSet<String> = if paused.is_empty() {
        HashSet::new()
    } else {
        STILL_PAUSED.query(args![paused.clone()], |row| row.need(1)).into_iter().collect()
    };
    let workgroups = names(|g| g.workgroup.as_ref());
    let held_back: HashMap<String, Time> = if workgroups.is_empty() {
        HashMap::new()
    } else {
        HELD_BACK.query(args![workgroups, claim.now], |r| (r.need(1), r.need(2))).into_iter().collect()
    };

    let (mut admitted, mut turned_away) = (Vec::with_capacity(taken.len()), Vec::new());
    for grant in taken {
        let group = grant.group_id.as_ref();
        if let Some(group) = group.filter(|g| paused.contains(g)) {
            let way =
                if locked.contains(group) { Way::Park(Reason::Group(group.clone())) } else { Way::Requeue };
            turned_away.push((grant, way));
        } else if let Some(due) = grant.workgroup.as_ref().and_then(|w| held_back.get(w)) {
            turned_away.push((grant, Way::Schedule(*due)));
        } else {
            admitted.push(grant);
        }
    }
    let admitted = by_key(admitted, &mut turned_away);
    turn_away(claim, turned_away);
    admitted
}

/// Of the entries with a merge key, those that are the first with their key.
fn by_key(taken: Vec<Grant>, turned_away: &mut Vec<(Grant, Way)>) -> Vec<Grant> {
    let mut leaders: HashMap<(String, String), i64> = HashMap::new();
    let mut admitted = Vec::with_capacity(taken.len());
    for grant in taken {
        let Some(key) = grant.merge_key.clone() else {
            admitted.push(grant);
            continue;
        };
        let key = (grant.group_id.clone().unwrap_or_default(), key);
        if let Some(leader) = leaders.get(&key) {
            // It was ready when the other was granted: it shares its end.
            turned_away.push((grant, Way::Park(Reason::Rides(*leader))));
            continue;
        }
        match merge::take(&key.0, &key.1, grant.task_no) {
            merge::Taken::Ours => {
                leaders.insert(key, grant.task_no);
                admitted.push(grant);
            }
            merge::Taken::Busy => turned_away.push((grant, Way::Park(Reason::Key(key.0, key.1)))),
            merge::Taken::Locked => turned_away.push((grant, Way::Requeue)),
        }
    }
    for ((group, key), leader) in leaders {
        merge::gather_riders(&group, &key, leader);
    }
    admitted
}

/// Moves entries out of the way, as if they had not been taken.
fn turn_away(claim: &mut Claim, turned_away: Vec<(Grant, Way)>) {
    if turned_away.is_empty() {
        return;
    }
    assign_transaction_id();
    claim.moves += turned_away.len();
    // One that an earlier actor may still return stays where its token is found; there are few of those.
    let (overdue, turned_away): (Vec<_>, Vec<_>) = turned_away.into_iter().partition(|(g, _)| g.overdue);
    if !overdue.is_empty() {
        claim.seen.extend(overdue.iter().map(|(g, _)| g.task_no));
        GIVE_BACK.execute(args![overdue.iter().map(|(g, _)| g.task_no).collect::<Vec<_>>(), claim.now]);
    }
    REMOVE.execute(args![turned_away.iter().map(|(g, _)| g.task_no).collect::<Vec<_>>()]);
    let (mut parked, mut requeued, mut scheduled) = (Vec::new(), Vec::new(), Vec::new());
    for (grant, way) in turned_away {
        let freed = Freed {
            task_no: grant.task_no,
            tries: grant.tries - 1,
            failures: grant.failures,
            dependencies: grant.dependencies,
            not_before: None,
        };
        match way {
            Way::Park(reason) => parked.push(Parked { freed, position: grant.position, reason }),
            Way::Requeue => {
                claim.seen.insert(grant.task_no);
                requeued.push(freed);
            }
            Way::Schedule(due) => scheduled.push((freed, due)),
        }
    }
    parked::park(&parked);
    ready::make_ready(&requeued);
    ready::hold_back(&scheduled);
}
