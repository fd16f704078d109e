//! What a call that waits has found that may not run.
//!
//! A claim moves such entries out of its way, once, and so they are out of everybody's. A call that is about to sleep can
//! neither keep what it has moved, since nobody could see it or change it before the call ends, nor end for it. So it
//! rolls its look back, and from then on reads before it takes: entries that may not run are noted here, and left out of
//! its looks for as long as their reason lasts. Nothing is written for that and nothing locked. The last look of a call
//! that comes back with nothing moves them.
//!
//! The transaction that ends a reason wakes the calls that may have left out entries for it, as if these had been parked.

use std::collections::{HashMap, HashSet};

use super::candidates::{self, Candidate};
use super::limited::sources;
use super::{marks, sleeper};
use crate::flow::actions::Action;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::clock::Time;
use crate::pg::session::check_for_interrupts;
use crate::pg::statement::{Statement, record};
use crate::store::merge_key::MergeKey;

/// Why an entry may not run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Why {
    Group(String),
    Workgroup(String),
    Key(MergeKey),
}

/// Entries that are left out.
#[derive(Default)]
pub(crate) struct LeftOut {
    /// The actions whose entries were walked.
    action_nos: Vec<i32>,
    /// With their lanes.
    lanes: HashMap<TaskNo, Lane>,
    reasons: HashSet<Why>,
    /// When the first of the workgroups may go on.
    until: Option<Time>,
    /// Up to this position nothing is to be had as long as no reason ends: all that stands there is left out. So the
    /// looks that follow begin behind it, and a wake-up for an entry that may not run costs the same however many there
    /// are.
    walked_to: Position,
    /// Entries that stand behind that, with their positions.
    behind: HashMap<TaskNo, Position>,
}

/// How many entries one look reads at first, and at most.
const FIRST: usize = 16;
const MOST: usize = 10_000;

record! {
    /// An entry, and what might keep it back.
    struct Judged {
        task_no: TaskNo,
        group: Option<String>,
        workgroup: Option<String>,
        merge_key: Option<String>,
        action: String,
        /// Its group is paused.
        paused: bool,
        /// Its workgroup is, until then.
        held_back: Option<Time>,
        /// Another task has its merge key.
        busy: bool,
    }
}

/// What keeps entries back, if anything does: the same questions as the [gates](super::gates) ask, in the same order.
static JUDGE: Statement<(&[TaskNo], Time), Judged> = Statement::new(
    c"SELECT t.task_no, t.group_id, t.workgroup, t.merge_key, t.name,
             EXISTS (SELECT FROM taskq.task_group g WHERE g.group_id = t.group_id AND g.paused OFFSET 0),
             (SELECT w.not_before FROM taskq.workgroup w WHERE w.name = t.workgroup AND w.not_before > $2),
             EXISTS (SELECT FROM taskq.merge_key m
                      WHERE m.action = t.name AND m.group_id = COALESCE(t.group_id, '') AND m.key = t.merge_key
                        AND m.holder_no IS NOT NULL OFFSET 0)
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.task_no, t.group_id, t.workgroup, t.merge_key, a.name
                             FROM taskq.task t, taskq.action a
                            WHERE t.task_no = u.task_no AND a.action_no = t.action_no OFFSET 0) AS t",
);
static PAUSED: Statement<&[&str], String> =
    Statement::new(c"SELECT g.group_id FROM taskq.task_group g WHERE g.group_id = ANY ($1) AND g.paused");
static HELD_BACK: Statement<(&[&str], Time), (String, Time)> = Statement::new(
    c"SELECT w.name, w.not_before FROM taskq.workgroup w WHERE w.name = ANY ($1) AND w.not_before > $2",
);
static BUSY: Statement<(&[&str], &[&str], &[&str]), MergeKey> = Statement::new(
    c"SELECT u.action, u.group_id, u.key FROM unnest($1, $2, $3) AS u(action, group_id, key)
       WHERE EXISTS (SELECT FROM taskq.merge_key m
                      WHERE m.action = u.action AND m.group_id = u.group_id AND m.key = u.key
                        AND m.holder_no IS NOT NULL OFFSET 0)",
);

impl LeftOut {
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Those that are left out, with their lanes.
    pub(super) fn entries(&self) -> &HashMap<TaskNo, Lane> {
        &self.lanes
    }

    /// When time ends the first of the reasons.
    pub(crate) fn until(&self) -> Option<Time> {
        self.until
    }

    /// Walks the entries of these actions in their order, without locks, and notes those that may not run. Tells
    /// whether it has come to one that may.
    pub(crate) fn walk(&mut self, actions: &[&Action], now: Time) -> bool {
        let action_nos: Vec<i32> = actions.iter().map(|action| action.action_no).collect();
        if self.action_nos != action_nos {
            // A new number of an action, or one that was paused: its entries may stand anywhere.
            *self = LeftOut { action_nos, ..LeftOut::default() };
        }
        self.forget_what_is_over(now);
        // Before the entries are read: whatever comes later stands behind it.
        let decided = marks::decided();
        let sources = sources(actions, &HashSet::new());
        // A lane that was full is not looked into; what it holds may have stood there all the time.
        let laned = sources.iter().any(|source| source.laned);
        if self.is_empty() && !laned && sleeper::first_is_free(&marks::ranges_of_look(&self.action_nos)) {
            // What most calls are woken for: nothing has to be asked about it.
            return true;
        }
        let mut window = FIRST;
        loop {
            check_for_interrupts();
            let next = match laned {
                true => candidates::next(&sources, window, &self.lanes, true),
                false => candidates::without_lanes(&sources, window, &self.behind, self.walked_to.next()),
            };
            if next.is_empty() {
                if !laned && decided > self.walked_to {
                    self.walked_to = decided;
                    self.behind.retain(|_, position| *position > decided);
                }
                return false;
            }
            let met: HashMap<TaskNo, Candidate> = next.into_iter().map(|c| (c.task_no, c)).collect();
            let task_nos: Vec<TaskNo> = met.keys().copied().collect();
            let mut judged = 0;
            let held_back: Vec<(TaskNo, Why, Option<Time>)> = JUDGE
                .map((task_nos, now), |entry| {
                    judged += 1;
                    let task_no = entry.task_no;
                    entry.why().map(|(why, until)| (task_no, why, until))
                })
                .into_iter()
                .flatten()
                .collect();
            let free = held_back.len() < judged;
            for (task_no, why, until) in held_back {
                self.note(&met[&task_no], why, until);
            }
            // If all are gone since the look, those behind them have not been seen: then the claim looks.
            if free || judged == 0 {
                return true;
            }
            window = (window * 4).min(MOST);
        }
    }

    fn note(&mut self, entry: &Candidate, why: Why, until: Option<Time>) {
        self.reasons.insert(why);
        self.lanes.insert(entry.task_no, entry.lane);
        if entry.lane == Lane::NONE {
            self.behind.insert(entry.task_no, entry.position);
            marks::learn_priority(entry.action_no, entry.priority);
        }
        self.until = self.until.into_iter().chain(until).min();
    }

    /// Once a reason is over, all is walked anew.
    fn forget_what_is_over(&mut self, now: Time) {
        if self.is_empty() {
            return;
        }
        let (mut groups, mut workgroups, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for why in &self.reasons {
            match why {
                Why::Group(group) => groups.push(group.as_str()),
                Why::Workgroup(workgroup) => workgroups.push(workgroup.as_str()),
                Why::Key(key) => keys.push(key),
            }
        }
        let mut last: HashSet<Why> = HashSet::new();
        self.until = None;
        if !groups.is_empty() {
            last.extend(PAUSED.map(groups, Why::Group));
        }
        if !workgroups.is_empty() {
            for (workgroup, until) in HELD_BACK.query((workgroups, now)) {
                self.until = self.until.into_iter().chain([until]).min();
                last.insert(Why::Workgroup(workgroup));
            }
        }
        if !keys.is_empty() {
            let keys = MergeKey::columns(keys.into_iter());
            last.extend(BUSY.map(keys, Why::Key));
        }
        if last.len() < self.reasons.len() {
            // What is free now may stand anywhere.
            *self = LeftOut { action_nos: std::mem::take(&mut self.action_nos), ..LeftOut::default() };
        }
    }
}

impl Judged {
    /// What keeps the entry back, and until when.
    fn why(self) -> Option<(Why, Option<Time>)> {
        if self.paused {
            return Some((Why::Group(self.group?), None));
        }
        if let Some(until) = self.held_back {
            return Some((Why::Workgroup(self.workgroup?), Some(until)));
        }
        let key = MergeKey::of(&self.action, self.group.as_deref(), self.merge_key.as_deref());
        Some((Why::Key(key.filter(|_| self.busy)?), None))
    }
}
