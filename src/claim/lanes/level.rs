//! The entries of one priority of an action, from all its lanes.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::part::{ALL, Part, as_limit};
use crate::claim::candidate::Candidate;
use crate::claim::turns::{self, Queue, Turn};
use crate::number::{Lane, Position, TaskNo};
use crate::pg::session::random_62_bits;
use crate::pg::statement::Statement;

type Ring =
    (i32, i32, &'static [Lane], Lane, Lane, i32, i32, i32, Position, &'static [Lane], &'static [Position]);

/// A stretch of the ring of lanes: up to $6 lanes from $4 to $5, without the full ones ($3), in each of them $7 turns
/// of entries and $8 more. $1 action, $2 priority. $9 to $11 what is known
/// ([`known_lanes`](crate::store::known_lanes)): the ring goes to the next excepted lane, or to one before that which
/// has something behind the common position.
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

/// How many lanes are looked at, at most, when the first turn is chosen.
const LANES_OF_THE_FIRST_TURN: i32 = 64;

/// One priority of an action.
pub(super) struct Level<'a> {
    /// The numbers of the action that have entries of it.
    pub(super) parts: &'a [&'a Part<'a>],
    /// The priority that all the entries have.
    pub(super) priority: i32,
    /// How many entries are to be found at most.
    pub(super) wanted: usize,
    /// Entries that are not to be tried, with their lanes: they were in vain, or the call does not take them.
    pub(super) passed: &'a HashMap<TaskNo, Lane>,
    /// Whether what is in no lane counts as well: not for a call that has moved enough out of its way.
    pub(super) lane_zero: bool,
}

impl Level<'_> {
    /// The entries of all lanes in one order.
    pub(super) fn by_position(&self) -> Vec<Candidate> {
        let each = self.wanted.saturating_add(self.most_passed());
        let (ring, _) = self.stretch(Lane::FIRST, Lane::LAST, ALL, 0, as_limit(each));
        let mut all: Vec<Candidate> = ring.into_iter().flat_map(|lane| lane.entries).collect();
        if self.lane_zero {
            all.extend(self.without_lane(each));
        }
        all.sort_unstable_by_key(|c| c.position);
        all.truncate(self.wanted);
        all
    }

    /// The entries as the lanes take turns, from the one whose turn it is.
    pub(super) fn by_turns(&self, turn: &mut Option<Turn>) -> Vec<Candidate> {
        let first = turn.unwrap_or_else(|| self.first_turn());
        let mut rounds = 1;
        loop {
            let (ring, all) = self.ring(first.start(), rounds);
            let had: usize = ring.iter().map(|lane| lane.entries.len()).sum();
            let taken = turns::take(ring, Some(first), self.wanted);
            // More rounds bring more only if the whole ring was seen, and some lane was cut off.
            if taken.len() >= self.wanted || all == Seen::Everything || rounds >= ALL {
                if let Some((_, last)) = taken.last() {
                    *turn = Some(*last);
                }
                return taken.into_iter().map(|(c, turn)| Candidate { turn: Some(turn), ..c }).collect();
            }
            let enough = self.wanted / had.max(1) + 1;
            rounds = rounds.saturating_mul(as_limit(enough.max(2))).min(ALL);
        }
    }

    /// A lane by chance, each as likely as its weight says; of very many, the one after a point by chance.
    fn first_turn(&self) -> Turn {
        let (mut lanes, _) = self.stretch(
            Lane::FIRST,
            Lane::LAST,
            LANES_OF_THE_FIRST_TURN,
            0,
            1 + as_limit(self.most_passed()),
        );
        if lanes.len() >= LANES_OF_THE_FIRST_TURN as usize {
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
        let of_each = self.parts.iter().map(|part| self.stretch_of(part, from, to, (lanes, rounds, spare)));
        let mut found = match self.parts {
            [_] => of_each.flatten().collect(),
            _ => joined(of_each.flatten(), lanes),
        };
        let mut cut = false;
        for queue in &mut found {
            // Of each number so many were asked for: what is behind that in one of them may come before the next of another.
            let most = (queue.weight as usize).saturating_mul(rounds as usize).saturating_add(spare as usize);
            cut |= queue.entries.len() >= most;
            queue.entries.truncate(most);
            queue.entries.retain(|entry| !self.passed.contains_key(&entry.task_no));
        }
        (found, cut)
    }

    fn stretch_of(
        &self,
        part: &Part,
        from: Lane,
        to: Lane,
        (lanes, rounds, spare): (i32, i32, i32),
    ) -> Vec<Queue<Candidate>> {
        let action_no = part.source.action.action_no;
        let full = part.source.full_lanes();
        let mut found: Vec<Queue<Candidate>> = Vec::new();
        let (excepted, starts) = part.known.excepted(self.priority, from, to);
        let rest = part.known.rest;
        let ring = (action_no, self.priority, full, from, to, lanes, rounds, spare, rest, excepted, starts);
        let looked = STRETCH.look_each(ring, |(lane, weight, task_no, position, group)| {
            part.cost.met.set(part.cost.met.get() + 1);
            if found.last().is_none_or(|last| last.lane != lane) {
                found.push(Queue { lane, weight: weight as u32, entries: Default::default() });
            }
            let Some(last) = found.last_mut() else { return };
            last.entries.push_back(self.candidate(action_no, task_no, position, lane, group));
        });
        part.cost.add(&looked);
        found
    }

    fn without_lane(&self, most: usize) -> Vec<Candidate> {
        let depth = as_limit(most.saturating_add(self.most_passed()));
        let mut found: Vec<Candidate> = Vec::new();
        for part in self.parts {
            let action_no = part.source.action.action_no;
            found.extend(WITHOUT_LANE.map((action_no, self.priority, depth), |(task_no, position)| {
                self.candidate(action_no, task_no, position, Lane::NONE, None)
            }));
        }
        if self.parts.len() > 1 {
            found.sort_unstable_by_key(|entry| entry.position);
            found.truncate(depth as usize);
        }
        found.retain(|entry| !self.passed.contains_key(&entry.task_no));
        found
    }

    fn candidate(
        &self,
        action_no: i32,
        task_no: TaskNo,
        position: Position,
        lane: Lane,
        group: Option<String>,
    ) -> Candidate {
        Candidate { task_no, action_no, priority: self.priority, position, lane, group, turn: None }
    }

    /// How many entries of one lane were tried, at most.
    fn most_passed(&self) -> usize {
        let mut counts: HashMap<Lane, usize> = HashMap::new();
        self.passed.values().for_each(|lane| *counts.entry(*lane).or_default() += 1);
        counts.into_values().max().unwrap_or(0)
    }
}

/// The same lanes of several numbers as one each, up to so many. Where one of the numbers has shown so many lanes, there may be more
/// of it; but those are behind all that are kept.
fn joined(queues: impl Iterator<Item = Queue<Candidate>>, lanes: i32) -> Vec<Queue<Candidate>> {
    let mut joined: BTreeMap<Lane, Queue<Candidate>> = BTreeMap::new();
    for queue in queues {
        match joined.entry(queue.lane) {
            Entry::Vacant(lane) => drop(lane.insert(queue)),
            Entry::Occupied(mut lane) => lane.get_mut().entries.extend(queue.entries),
        }
    }
    let mut joined: Vec<Queue<Candidate>> = joined.into_values().take(lanes as usize).collect();
    for queue in &mut joined {
        queue.entries.make_contiguous().sort_unstable_by_key(|entry| entry.position);
    }
    joined
}

/// Whether there is more to be had than what was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Everything,
    Some,
}
