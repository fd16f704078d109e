//! Lanes: the entries of groups whose turn or whose limit has to be looked at before one of them is taken.
//!
//! An entry of a group is in the lane of that group (`run.lane`) if its action is fair or has a limit per group, or if
//! the group has a limit of its own; all others are in lane 0. Each lane is a range of `run_lane_idx`. **A lane that is
//! full costs nothing but a jump over it**, however many entries wait in it; and full lanes are no more than there are
//! performances in progress.
//!
//! Nothing here locks. What is found is a candidate, to be claimed by number, which passes over what has changed.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use super::candidates::{Candidate, Source};
use super::lane_marks;
use super::turns::{self, Queue, Turn};
use crate::flow::actions::Action;
use crate::number::{Lane, Position, TaskNo};
use crate::pg::session::{assign_transaction_id, random_62_bits};
use crate::pg::statement::{Looked, Statement};
use crate::store::known_lanes::{self, Known};
use crate::store::run::changes;
use crate::store::slot::full_lanes;
use crate::wake;

/// Jumps from lane to lane, and from the last of a priority to the first of the next lower one. $1 action, $2 lanes
/// that are full, $3 the priorities below which to begin, $4 whether lane 0 counts, $5 to $8 what is known
/// ([`known_lanes`]).
static TOP: Statement<(i32, &[Lane], i64, bool, Position, &[i32], &[Lane], &[Position]), Option<i32>> =
    Statement::new(
        c"WITH RECURSIVE lanes(priority, lane) AS (
        (SELECT r.priority, r.lane FROM taskq.run r
          WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.priority < $3 AND r.position >= $5
          ORDER BY r.priority DESC, r.lane, r.position LIMIT 1)
        UNION ALL
        SELECT n.priority, n.lane FROM lanes
         CROSS JOIN LATERAL (
               (SELECT r.priority, r.lane FROM taskq.run r
                 WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.priority = lanes.priority
                   AND r.lane > lanes.lane AND r.position >= $5
                 ORDER BY r.lane, r.position LIMIT 1)
               UNION ALL
               (SELECT r.priority, r.lane FROM taskq.run r
                 WHERE r.action_no = $1 AND r.lane <> 0 AND r.grantable AND r.priority < lanes.priority
                   AND r.position >= $5
                 ORDER BY r.priority DESC, r.lane, r.position LIMIT 1)
               LIMIT 1) AS n)
      SELECT GREATEST(
             (SELECT l.priority FROM lanes AS l WHERE l.lane <> ALL ($2) LIMIT 1),
             (SELECT k.priority FROM unnest($6, $7, $8) AS k(priority, lane, start)
               WHERE k.priority < $3 AND k.lane <> ALL ($2)
                 AND EXISTS (SELECT FROM taskq.run r
                              WHERE r.action_no = $1 AND r.priority = k.priority AND r.lane = k.lane
                                AND r.lane <> 0 AND r.grantable AND r.position >= k.start OFFSET 0)
               LIMIT 1),
             (SELECT r.priority FROM taskq.run r
               WHERE $4 AND r.action_no = $1 AND r.lane = 0 AND r.grantable AND r.priority < $3
               ORDER BY r.priority DESC, r.position LIMIT 1))",
    );

type Ring =
    (i32, i32, &'static [Lane], Lane, Lane, i32, i32, i32, Position, &'static [Lane], &'static [Position]);

/// A stretch of the ring of lanes: up to $6 lanes from $4 to $5, without the full ones ($3), in each of them $7 turns
/// of entries and $8 more. $1 action, $2 priority. $9 to $11 what is known ([`known_lanes`]): the ring goes to the next
/// excepted lane, or to one before that which has something behind the common position.
static STRETCH: Statement<Ring, (Lane, i32, TaskNo, Position, Option<String>)> = Statement::new(
    c"WITH RECURSIVE ring(lane, start, at) AS (
        ((SELECT r.lane, $9, 1 FROM taskq.run r
           WHERE r.action_no = $1 AND r.priority = $2 AND r.lane <> 0 AND r.grantable AND r.position >= $9
             AND r.lane >= $4 AND r.lane <= COALESCE($10[1] - 1, $5)
           ORDER BY r.lane, r.position LIMIT 1)
         UNION ALL
         SELECT $10[1], $11[1], 2 WHERE $10[1] IS NOT NULL
         LIMIT 1)
        UNION ALL
        SELECT n.lane, n.start, n.at FROM ring
         CROSS JOIN LATERAL (
               (SELECT r.lane, $9, ring.at FROM taskq.run r
                 WHERE r.action_no = $1 AND r.priority = $2 AND r.lane <> 0 AND r.grantable AND r.position >= $9
                   AND r.lane > ring.lane AND r.lane <= COALESCE($10[ring.at] - 1, $5)
                 ORDER BY r.lane, r.position LIMIT 1)
               UNION ALL
               SELECT $10[ring.at], $11[ring.at], ring.at + 1 WHERE $10[ring.at] IS NOT NULL
               LIMIT 1) AS n(lane, start, at))
      SELECT l.lane, l.weight, e.task_no, e.position, t.group_id
        FROM (SELECT ring.lane, ring.start,
                     COALESCE((SELECT g.weight
                                 FROM (SELECT t.group_id FROM taskq.task t
                                        WHERE t.task_no = first.task_no OFFSET 0) AS t,
                                      LATERAL (SELECT g.weight FROM taskq.task_group g
                                                WHERE g.group_id = t.group_id OFFSET 0) AS g), 1) AS weight
                FROM ring
               CROSS JOIN LATERAL (SELECT r.task_no FROM taskq.run r
                                    WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = ring.lane
                                      AND r.lane <> 0 AND r.grantable AND r.position >= ring.start
                                    ORDER BY r.position LIMIT 1) AS first
               WHERE ring.lane <> ALL ($3) LIMIT $6) AS l
       CROSS JOIN LATERAL (SELECT r.task_no, r.position FROM taskq.run r
                            WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = l.lane AND r.lane <> 0
                              AND r.grantable AND r.position >= l.start
                            ORDER BY r.position LIMIT l.weight * $7::bigint + $8) AS e
       CROSS JOIN LATERAL (SELECT t.group_id FROM taskq.task t WHERE t.task_no = e.task_no OFFSET 0) AS t",
);

/// The first $3 entries of lane 0. $1 action, $2 priority.
static WITHOUT_LANE: Statement<(i32, i32, i32), (TaskNo, Position)> = Statement::new(
    c"SELECT r.task_no, r.position FROM taskq.run r
       WHERE r.action_no = $1 AND r.priority = $2 AND r.lane = 0 AND r.grantable
       ORDER BY r.position LIMIT $3",
);

/// How many lanes a backend knows by name when it chooses the first turn.
const FEW: i32 = 64;

/// The next candidates of an action that has lanes: `wanted` of them, if there are so many that are not in `passed`.
/// Higher priorities first; within one of them in the order of positions or, if the action is fair, by turns.
pub(super) fn next(
    source: &Source,
    wanted: usize,
    passed: &HashMap<TaskNo, Lane>,
    lane_zero: bool,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut turn = turns::current(source.action.action_no);
    let mut below = i64::from(i32::MAX) + 1;
    let action_no = source.action.action_no;
    let known = known_lanes::known(action_no);
    let cost = Cost::default();
    while found.len() < wanted {
        let (priority, looked) = top(action_no, &known, source.full_lanes(), below, lane_zero);
        cost.add(&looked);
        let Some(priority) = priority else { break };
        let wanted = wanted - found.len();
        let level = Level { source, priority, wanted, passed, lane_zero, known: &known, cost: &cost };
        if source.action.gives_lanes() {
            found.extend(level.by_turns(&mut turn));
        } else {
            found.extend(level.by_position());
        }
        below = i64::from(priority);
    }
    cost.tell(action_no, source.full.len());
    found
}

/// The highest priority below another one that has an entry in a lane that is not full.
fn top(action_no: i32, known: &Known, full: Vec<Lane>, below: i64, lane_zero: bool) -> (Option<i32>, Looked) {
    let (rest, priorities, lanes, starts) = known.columns();
    let (rows, looked) = TOP.look((action_no, full, below, lane_zero, rest, priorities, lanes, starts));
    (rows.into_iter().next().flatten(), looked)
}

/// What it has cost to find some entries.
#[derive(Default)]
struct Cost {
    pages: Cell<u64>,
    met: Cell<usize>,
}

impl Cost {
    fn add(&self, looked: &Looked) {
        self.pages.set(self.pages.get() + looked.pages);
    }

    /// An entry takes some thirty pages at most, with its lane, its task and its group; a lane that is jumped over half of
    /// that.
    fn tell(&self, action_no: i32, jumped_over: usize) {
        lane_marks::has_cost(action_no, self.pages.get(), 32 * self.met.get() + 16 * jumped_over);
    }
}

/// One priority of an action.
struct Level<'a> {
    source: &'a Source<'a>,
    priority: i32,
    wanted: usize,
    /// Entries that were tried, with their lanes: claims of others hold them, or they have moved.
    passed: &'a HashMap<TaskNo, Lane>,
    lane_zero: bool,
    known: &'a Known,
    cost: &'a Cost,
}

impl Level<'_> {
    /// The entries of all lanes in one order.
    fn by_position(&self) -> Vec<Candidate> {
        let each = self.wanted.saturating_add(self.most_passed());
        let (ring, _) = self.stretch(Lane::FIRST, Lane::LAST, MOST, 0, as_limit(each));
        let mut all: Vec<Candidate> = ring.into_iter().flat_map(|lane| lane.entries).collect();
        if self.lane_zero {
            all.extend(self.without_lane(each));
        }
        all.sort_unstable_by_key(|c| c.position);
        all.truncate(self.wanted);
        all
    }

    /// The entries as the lanes take turns, from the one whose turn it is.
    fn by_turns(&self, turn: &mut Option<Turn>) -> Vec<Candidate> {
        let first = turn.unwrap_or_else(|| self.first_turn());
        let mut rounds = 1;
        loop {
            let (ring, all) = self.ring(first.start(), rounds);
            let had: usize = ring.iter().map(|lane| lane.entries.len()).sum();
            let taken = turns::take(ring, Some(first), self.wanted);
            // More rounds bring more only if the whole ring was seen, and some lane was cut off.
            if taken.len() >= self.wanted || all == Seen::Everything || rounds >= MOST {
                if let Some((_, last)) = taken.last() {
                    *turn = Some(*last);
                }
                return taken.into_iter().map(|(c, turn)| Candidate { turn: Some(turn), ..c }).collect();
            }
            let enough = self.wanted / had.max(1) + 1;
            rounds = rounds.saturating_mul(as_limit(enough.max(2))).min(MOST);
        }
    }

    /// A lane by chance, each as likely as its weight says; of very many, the one after a point by chance.
    fn first_turn(&self) -> Turn {
        let (mut lanes, _) = self.stretch(Lane::FIRST, Lane::LAST, FEW, 0, 1 + as_limit(self.most_passed()));
        if lanes.len() >= FEW as usize {
            return Turn { lane: Lane(random_62_bits().wrapping_mul(4)), left: 0 };
        }
        if self.lane_zero && !self.without_lane(1).is_empty() {
            lanes.push(Queue { lane: Lane::NONE, weight: 1, entries: Default::default() });
        }
        let weights: i64 = lanes.iter().map(|lane| i64::from(lane.weight)).sum();
        let mut point = random_62_bits() % weights.max(1);
        for lane in &lanes {
            point -= i64::from(lane.weight);
            if point < 0 {
                return Turn { lane: lane.lane, left: lane.weight };
            }
        }
        Turn { lane: Lane::LAST, left: 0 }
    }

    /// The lanes in the order of the ring, with so many rounds of entries, and whether that is all there is.
    fn ring(&self, start: Lane, rounds: i32) -> (Vec<Queue<Candidate>>, Seen) {
        let spare = as_limit(self.most_passed());
        let lanes_passed: HashSet<Lane> = self.passed.values().copied().collect();
        let most = as_limit(self.wanted.saturating_add(lanes_passed.len()));
        let (mut ring, mut cut) = self.stretch(start, Lane::LAST, most, rounds, spare);
        let left = most - as_limit(ring.len());
        if left > 0 && start > Lane::FIRST {
            let (rest, rest_cut) = self.stretch(Lane::FIRST, start.before(), left, rounds, spare);
            ring.extend(rest);
            cut |= rest_cut;
        }
        let whole = (ring.len() as i32) < most;
        let last = ring.last().map(|lane| lane.lane.distance_from(start));
        if self.lane_zero && (whole || last.is_some_and(|last| Lane::NONE.distance_from(start) < last)) {
            let each = rounds.saturating_add(spare);
            let entries = self.without_lane(each as usize);
            cut |= entries.len() >= rounds as usize;
            ring.push(Queue { lane: Lane::NONE, weight: 1, entries: entries.into() });
            ring.sort_by_key(|lane| lane.lane.distance_from(start));
        }
        (ring, if whole && !cut { Seen::Everything } else { Seen::Some })
    }

    /// Some lanes with their entries, and whether any of them may have more. Lanes that have only entries that were
    /// tried come without any.
    fn stretch(
        &self,
        from: Lane,
        to: Lane,
        lanes: i32,
        rounds: i32,
        spare: i32,
    ) -> (Vec<Queue<Candidate>>, bool) {
        let action_no = self.source.action.action_no;
        let full = self.source.full_lanes();
        let mut found: Vec<Queue<Candidate>> = Vec::new();
        let mut rows = 0;
        let mut cut = false;
        let (excepted, starts) = self.known.excepted(self.priority, from, to);
        let ring = (
            action_no,
            self.priority,
            full,
            from,
            to,
            lanes,
            rounds,
            spare,
            self.known.rest,
            excepted,
            starts,
        );
        let looked = STRETCH.look_each(ring, |(lane, weight, task_no, position, group)| {
            self.cost.met.set(self.cost.met.get() + 1);
            if found.last().is_none_or(|last| last.lane != lane) {
                found.push(Queue { lane, weight: weight as u32, entries: Default::default() });
                rows = 0;
            }
            rows += 1;
            let Some(last) = found.last_mut() else { return };
            cut |= rows >= i64::from(last.weight) * i64::from(rounds) + i64::from(spare);
            if !self.passed.contains_key(&task_no) {
                last.entries.push_back(self.candidate(task_no, position, lane, group));
            }
        });
        self.cost.add(&looked);
        (found, cut)
    }

    fn without_lane(&self, most: usize) -> Vec<Candidate> {
        let most = as_limit(most.saturating_add(self.most_passed()));
        WITHOUT_LANE
            .map((self.source.action.action_no, self.priority, most), |(task_no, position)| {
                (!self.passed.contains_key(&task_no))
                    .then(|| self.candidate(task_no, position, Lane::NONE, None))
            })
            .into_iter()
            .flatten()
            .collect()
    }

    fn candidate(&self, task_no: TaskNo, position: Position, lane: Lane, group: Option<String>) -> Candidate {
        let (action_no, priority) = (self.source.action.action_no, self.priority);
        Candidate { task_no, action_no, priority, position, lane, group, turn: None }
    }

    /// How many entries of one lane were tried, at most.
    fn most_passed(&self) -> usize {
        let mut counts: HashMap<Lane, usize> = HashMap::new();
        self.passed.values().for_each(|lane| *counts.entry(*lane).or_default() += 1);
        counts.into_values().max().unwrap_or(0)
    }
}

/// Whether there is more to be had than what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Everything,
    Some,
}

/// What stands for "all of them" in a LIMIT.
const MOST: i32 = i32::MAX / 4;

fn as_limit(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(MOST).min(MOST)
}

/// Moves up to `most` entries of an action into the lanes of their groups; returns how many.
pub(super) fn move_in(action: &Action, most: usize) -> usize {
    assign_transaction_id();
    let moved =
        changes::MOVE_INTO_LANES.execute((action.action_no, as_limit(most), action.gives_lanes())) as usize;
    if moved > 0 {
        // Others have passed over them meanwhile.
        wake::ready_for_all(action.action_no);
    }
    moved
}

/// Which of the actions have an entry in a lane that is not full, as far as this transaction can see.
pub(crate) fn with_entries<'a>(actions: impl Iterator<Item = &'a Action>) -> Vec<i32> {
    let laned: Vec<&Action> = actions.filter(|a| a.has_lanes()).collect();
    if laned.is_empty() {
        return Vec::new();
    }
    let full = full_lanes(laned.iter().map(|a| a.name.clone()));
    let below = i64::from(i32::MAX) + 1;
    let has_entry = |action: &Action| {
        let known = known_lanes::known(action.action_no);
        top(action.action_no, &known, full_in(action, &full), below, false).0.is_some()
    };
    laned.into_iter().filter(|a| has_entry(a)).map(|a| a.action_no).collect()
}

/// The lanes that are full for an action.
pub(super) fn full_in(action: &Action, full: &[(String, Lane)]) -> Vec<Lane> {
    full.iter().filter(|(name, _)| name.is_empty() || *name == action.name).map(|(_, lane)| *lane).collect()
}
