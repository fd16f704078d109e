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
use std::time::Instant;

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

/// How many entries a walk asks about at first; each time four times as many, from here on twice. It has read past those before
/// each time, which is as much again altogether.
const FIRST: usize = 16;
const MANY: usize = 10_000;

record! {
    /// An entry, and what might keep it back.
    struct Entry {
        task_no: TaskNo,
        group: Option<String>,
        workgroup: Option<String>,
        merge_key: Option<String>,
    }
}

static ENTRIES: Statement<&[TaskNo], Entry> = Statement::new(
    c"SELECT t.task_no, t.group_id, t.workgroup, t.merge_key
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.task_no, t.group_id, t.workgroup, t.merge_key
                             FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t",
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

/// Those of the reasons that there are, with the times that end them: a group is paused, a workgroup held back, another task has
/// the key. The same questions as the [gates](super::gates) ask.
fn holding<'a>(reasons: impl Iterator<Item = &'a Why>, now: Time) -> HashMap<Why, Option<Time>> {
    let (mut groups, mut workgroups, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for why in reasons {
        match why {
            Why::Group(group) => groups.push(group.as_str()),
            Why::Workgroup(workgroup) => workgroups.push(workgroup.as_str()),
            Why::Key(key) => keys.push(key),
        }
    }
    let mut holding = HashMap::new();
    if !groups.is_empty() {
        holding.extend(PAUSED.map(groups, |group| (Why::Group(group), None)));
    }
    if !workgroups.is_empty() {
        let held_back = |(workgroup, until)| (Why::Workgroup(workgroup), Some(until));
        holding.extend(HELD_BACK.map((workgroups, now), held_back));
    }
    if !keys.is_empty() {
        holding.extend(BUSY.map(MergeKey::columns(keys.into_iter()), |key| (Why::Key(key), None)));
    }
    holding
}

impl Entry {
    /// What may keep it back, in the order in which the gates ask.
    fn reasons(self, action: &str) -> impl Iterator<Item = Why> {
        let key = MergeKey::of(action, self.group.as_deref(), self.merge_key.as_deref()).map(Why::Key);
        [self.group.map(Why::Group), self.workgroup.map(Why::Workgroup), key].into_iter().flatten()
    }
}

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
    /// whether it has come to one that may. It goes on for as long as the call may.
    pub(crate) fn walk(&mut self, actions: &[&Action], now: Time, until: Option<Instant>) -> bool {
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
            let since = Instant::now();
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
            let name = |action_no: i32| actions.iter().find(|a| a.action_no == action_no).map(|a| &*a.name);
            let judged: Vec<(TaskNo, Vec<Why>)> =
                ENTRIES.map(met.keys().copied().collect::<Vec<_>>(), |entry| {
                    let (task_no, action_no) = (entry.task_no, met[&entry.task_no].action_no);
                    (task_no, entry.reasons(name(action_no).unwrap_or_default()).collect())
                });
            let asked: HashSet<&Why> = judged.iter().flat_map(|(_, reasons)| reasons).collect();
            let holding = holding(asked.into_iter(), now);
            let mut free = judged.is_empty();
            for (task_no, reasons) in &judged {
                match reasons.iter().find_map(|why| holding.get_key_value(why)) {
                    Some((why, until)) => self.note(&met[task_no], why, *until),
                    None => free = true,
                }
            }
            // If all are gone since the look, those behind them have not been seen: then the claim looks.
            if free {
                return true;
            }
            // The next ones take longer than these, by so much.
            let more = if window < MANY { 4 } else { 2 };
            if until.is_some_and(|until| Instant::now() + more as u32 * since.elapsed() >= until) {
                return false;
            }
            window *= more;
        }
    }

    fn note(&mut self, entry: &Candidate, why: &Why, until: Option<Time>) {
        if !self.reasons.contains(why) {
            self.reasons.insert(why.clone());
        }
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
        let last = holding(self.reasons.iter(), now);
        self.until = last.values().flatten().min().copied();
        if last.len() < self.reasons.len() {
            // What is free now may stand anywhere.
            *self = LeftOut { action_nos: std::mem::take(&mut self.action_nos), ..LeftOut::default() };
        }
    }
}
