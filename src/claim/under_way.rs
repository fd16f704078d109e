//! A claim under way: what it has moved out of its way, and why.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::call::{Call, Grant};
use super::gates::{Admitted, HasSlot, Met};
use super::way::Found;
use super::{gates, lanes, merge, sweep};
use crate::allowance::Allowance;
use crate::flow::actions::Action;
use crate::number::TaskNo;

/// When a call has moved so many entries out of its way it looks at none any more but those that are in lanes; when it has moved
/// twice as many, it ends with what it has.
const MOST_MOVES: usize = 20_000;

/// The call, and the books that are kept of it. They are written here only.
pub(super) struct Claim<'a> {
    /// What the call asks for, and by what it goes.
    pub(super) call: Call<'a>,
    /// How many entries it has moved out of its way.
    moves: usize,
    /// Since it has begun to look ahead for them.
    pace: Option<Pace>,
    /// What keeps entries back, and where such were met.
    found: Found,
    /// How often it has looked ahead for others like them.
    sweeps: u32,
    /// Actions of which entries were met that belong into lanes, with where the first stood, and these entries, which are in lanes now.
    to_lanes: HashMap<i32, Met>,
    moved_into_lanes: Vec<TaskNo>,
}

/// How fast a claim moves entries, and how much time its caller's time-out leaves for that.
struct Pace {
    time: Allowance,
    since: Instant,
    /// How many it had moved before.
    moves: usize,
}

impl Pace {
    /// How many more there is time for, after so many.
    fn most(&self, moved: usize) -> usize {
        match self.time.left() {
            Some(left) if moved > 0 => {
                (moved as f64 * left.as_secs_f64() / self.since.elapsed().as_secs_f64()) as usize
            }
            _ => usize::MAX,
        }
    }
}

impl<'a> Claim<'a> {
    /// A claim that has moved nothing and met nothing yet.
    pub(super) fn new(call: Call<'a>) -> Self {
        Claim {
            call,
            moves: 0,
            pace: None,
            found: Found::default(),
            sweeps: 0,
            to_lanes: HashMap::new(),
            moved_into_lanes: Vec::new(),
        }
    }

    /// Those of the entries that may run; the others are moved out of the way.
    pub(super) fn admit(&mut self, taken: Vec<Grant>, has_slot: HasSlot) -> Vec<Grant> {
        if !taken.iter().any(|g| g.gated) {
            return taken;
        }
        merge::taken(&taken);
        let Admitted { grants, moved, found, to_lanes } = gates::admit(&self.call, taken, has_slot);
        self.moves += moved;
        self.found.add(found);
        for (task_no, action_no, met) in to_lanes {
            let first = self.to_lanes.entry(action_no).or_insert(met);
            *first = met.min(*first);
            self.moved_into_lanes.push(task_no);
        }
        grants
    }

    /// Moves what stands behind the entries that were turned away since the last time and is kept back as they are.
    pub(super) fn sweep(&mut self) {
        let met = std::mem::take(&mut self.found.met);
        if met.is_empty() {
            return;
        }
        let most = sweep::depth(self.sweeps);
        self.sweeps += 1;
        for (stretch, from) in met {
            let room = self.room_to_move(most);
            if room > 0 {
                let action = self.call.action(stretch.action_no).map_or("", |a| a.named.name.as_str());
                self.moves += sweep::move_all(&self.found, stretch, from, action, room);
            }
        }
    }

    /// Moves entries of an action that belong into lanes there, from where one was met, up to so many.
    pub(super) fn move_into_lanes(&mut self, action: &Action, from: Met, most: usize) {
        let room = self.room_to_move(most);
        if room > 0 {
            self.moves += lanes::move_in(action, from, room);
        }
    }

    /// Actions of which entries were met that belong into lanes.
    pub(super) fn lanes_met(&self) -> HashSet<i32> {
        self.to_lanes.keys().copied().collect()
    }

    /// Whether entries were met since the last time that belong into lanes.
    pub(super) fn has_met_lanes(&self) -> bool {
        !self.to_lanes.is_empty()
    }

    /// The same, and those of their entries that are in lanes now, since the last time.
    pub(super) fn take_lanes_met(&mut self) -> (HashMap<i32, Met>, Vec<TaskNo>) {
        (std::mem::take(&mut self.to_lanes), std::mem::take(&mut self.moved_into_lanes))
    }

    /// Whether it has moved any entry out of its way.
    pub(super) fn has_moved(&self) -> bool {
        self.moves > 0
    }

    /// Whether it moves more out of its way.
    pub(super) fn may_move(&self) -> bool {
        self.moves < MOST_MOVES && !self.pace.as_ref().is_some_and(|pace| pace.time.is_used_up())
    }

    /// It has moved so much that it ends with what it has.
    pub(super) fn is_over(&self) -> bool {
        self.moves >= 2 * MOST_MOVES
    }

    /// So many of those that it might move next it has the time for, as fast as it has moved those before.
    fn room_to_move(&mut self, most: usize) -> usize {
        let room = MOST_MOVES.saturating_sub(self.moves).min(most);
        let moves = self.moves;
        let begin = || Pace { time: Allowance::half_of_time_out(), since: Instant::now(), moves };
        let pace = self.pace.get_or_insert_with(begin);
        room.min(pace.most(moves - pace.moves))
    }
}
