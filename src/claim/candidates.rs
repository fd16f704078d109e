//! What a claim that has to choose may choose from: the next entries of all its actions, in one order, without locks.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};

use super::candidate::{Candidate, Source};
use super::{lanes, marks};
use crate::number::{Lane, Position, TaskNo};
use crate::pg::statement::Statement;

/// The next entries of several actions, in order, without locks, leaving lanes out.
static PEEK: Statement<(i32, &[i32], &[i32], &[i32], &[Position]), (TaskNo, i32, i32, Position)> =
    Statement::new(
        c"SELECT p.task_no, p.action_no, p.priority, p.position
        FROM unnest($2, $3, $4, $5) AS a(action_no, highest, lowest, start)
       CROSS JOIN LATERAL (
             SELECT c.task_no, c.action_no, c.priority, c.position FROM taskq.run c
              WHERE c.action_no = a.action_no AND c.lane = 0 AND c.grantable
                AND c.priority <= a.highest AND c.priority >= a.lowest AND c.position >= a.start
              ORDER BY c.priority DESC, c.position
              LIMIT $1) AS p
       ORDER BY p.priority DESC, p.position
       LIMIT $1",
    );

/// The next `depth` entries of several actions that are in no lanes.
fn peek(of: &[i32], depth: i32) -> Vec<Candidate> {
    let ranges = marks::ranges_of_look(of);
    let (action_nos, highest, lowest, starts) = ranges.columns();
    let (found, looked) = PEEK.look((depth, action_nos, highest, lowest, starts));
    marks::has_walked(of, &ranges, looked.pages, found.len());
    let candidate = |(task_no, action_no, priority, position)| Candidate {
        task_no,
        action_no,
        priority,
        position,
        lane: Lane::NONE,
        group: None,
        turn: None,
    };
    found.into_iter().map(candidate).collect()
}

/// The next candidates in the order of all actions together: `wanted` of them at most, without those in `passed`, where each has its
/// lane. Where an action takes turns, the oldest of those that it would have taken stands for it. Lanes
/// are read by one statement after the other, so a task whose priority is changed meanwhile may be met twice: it is a
/// candidate where it was met first.
pub(super) fn next(
    sources: &[Source],
    wanted: usize,
    passed: &HashMap<TaskNo, Lane>,
    lane_zero: bool,
) -> Vec<Candidate> {
    let mut streams: Vec<VecDeque<Candidate>> = Vec::new();
    if lane_zero {
        streams.push(without_lanes(sources, wanted, passed).into());
    }
    for numbers in by_name(sources.iter().filter(|s| s.laned)) {
        streams.push(lanes::next(&numbers, wanted, passed, lane_zero).into());
    }
    let mut met = HashSet::new();
    for stream in &mut streams {
        stream.retain(|candidate| met.insert(candidate.task_no));
    }
    merge(streams, wanted)
}

/// Those that stand for the same name together.
fn by_name<'a>(sources: impl Iterator<Item = &'a Source<'a>>) -> Vec<Vec<&'a Source<'a>>> {
    let mut names: Vec<Vec<&Source>> = Vec::new();
    for source in sources {
        match names.iter_mut().find(|name| name[0].turns == source.turns) {
            Some(name) => name.push(source),
            None => names.push(vec![source]),
        }
    }
    names
}

/// The next entries of those actions that have no lanes: `wanted` of them, if there are so many that are not in `passed`.
fn without_lanes(sources: &[Source], wanted: usize, passed: &HashMap<TaskNo, Lane>) -> Vec<Candidate> {
    let action_nos: Vec<i32> = sources.iter().filter(|s| !s.laned).map(|s| s.action.action_no).collect();
    if action_nos.is_empty() {
        return Vec::new();
    }
    let depth = wanted.saturating_add(passed.len()).min(i32::MAX as usize / 2);
    let mut next = peek(&action_nos, depth as i32);
    next.retain(|c| !passed.contains_key(&c.task_no));
    next.truncate(wanted);
    next
}

fn merge(mut streams: Vec<VecDeque<Candidate>>, wanted: usize) -> Vec<Candidate> {
    let mut merged = Vec::new();
    let mut ages: Vec<VecDeque<Age>> = streams.iter().map(ages).collect();
    while merged.len() < wanted {
        let first =
            (0..streams.len()).filter(|i| !ages[*i].is_empty()).min_by_key(|i| ages[*i].front().copied());
        let Some(first) = first else { break };
        ages[first].pop_front();
        merged.extend(streams[first].pop_front());
    }
    merged
}

/// What decides between actions: the priority, then the position.
type Age = (Reverse<i32>, Position);

/// Of each candidate the age of the oldest of its priority that is not before it. One that is new and has its turn
/// must not make the older ones of its action wait for those of another.
fn ages(stream: &VecDeque<Candidate>) -> VecDeque<Age> {
    let mut ages: VecDeque<Age> = VecDeque::with_capacity(stream.len());
    for candidate in stream.iter().rev() {
        let age = (Reverse(candidate.priority), candidate.position);
        let next = ages.front().filter(|next| next.0 == age.0);
        ages.push_front(next.map_or(age, |next| age.min(*next)));
    }
    ages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(task_no: i64, priority: i32, position: i64) -> Candidate {
        Candidate {
            task_no: TaskNo(task_no),
            action_no: 1,
            priority,
            position: Position(position),
            lane: Lane::NONE,
            group: None,
            turn: None,
        }
    }

    #[test]
    fn streams_are_merged_by_what_is_oldest_in_them() {
        // The second takes turns: its own order stays, whatever the positions say.
        let streams = vec![
            VecDeque::from([candidate(1, 5, 10), candidate(2, 0, 20), candidate(3, 0, 30)]),
            VecDeque::from([candidate(4, 0, 25), candidate(5, 0, 5)]),
            VecDeque::new(),
        ];
        let order = |n| merge(streams.clone(), n).iter().map(|c| c.task_no.0).collect::<Vec<_>>();
        assert_eq!(order(9), [1, 4, 5, 2, 3]);
        assert_eq!(order(2), [1, 4]);
    }
}
