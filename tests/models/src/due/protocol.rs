//! Which steps there are in a state, what each makes of it, and what must hold.

use super::{Action, At, Clause, Due, LONGEST, SOON, Stage, State, Step, Time, Waiter};
use crate::check::Protocol;

impl Protocol for Due {
    type State = State;
    type Step = Step;

    fn begin(&self) -> State {
        let waiter = Waiter { at: At::Begin, latch: false, soon: false, sees: 0, links: 0, told: 0 };
        State {
            now: 0,
            waiters: vec![waiter; self.waiters.len()],
            commits: vec![Stage::Open(None); self.things.len() + self.links.len()],
            done: 0,
            leave: self.leave,
            slow: self.slow,
        }
    }

    fn steps(&self, state: &State) -> Vec<Step> {
        let mut steps = Vec::new();
        for (w, waiter) in state.waiters.iter().enumerate() {
            match waiter.at {
                At::Begin => steps.push(Step::Snapshot(w)),
                At::HasSnapshot(_) => steps.extend([Step::Look(w, SOON), Step::Look(w, LONGEST)]),
                At::Asleep { until } => {
                    steps.extend((waiter.latch || until <= state.now).then_some(Step::WakeUp(w)));
                    if state.leave > 0 {
                        steps.extend([Step::TimeIsUp(w), Step::Cancel(w)]);
                    }
                }
                At::Leaving => steps.push(Step::HandOn(w)),
                At::Over => {}
            }
        }
        for (c, stage) in state.commits.iter().enumerate() {
            match stage {
                Stage::Open(None) if c >= self.things.len() => steps.push(Step::Link(c)),
                Stage::Open(_) => steps.push(Step::Commit(c)),
                Stage::Visible(_) => steps.push(Step::Pay(c)),
                Stage::Over => {}
            }
        }
        // Who may commit, or leave, need not do so before time goes on.
        let waits = |step: &Step| {
            matches!(step, Step::Commit(_) | Step::Link(_) | Step::TimeIsUp(_) | Step::Cancel(_))
        };
        let idle = steps.iter().all(waits);
        if state.now < self.end() && (idle || state.slow > 0) {
            steps.push(Step::Tick);
        }
        steps
    }

    fn step(&self, state: &State, step: &Step) -> State {
        let mut state = state.clone();
        match *step {
            Step::Snapshot(w) => {
                let (sees, links) = self.visible(&state);
                let now = state.now;
                let waiter = &mut state.waiters[w];
                (waiter.sees, waiter.links) = (sees, links);
                waiter.at = At::HasSnapshot(now);
            }
            Step::Look(w, pace) => self.look(&mut state, w, pace),
            Step::WakeUp(w) => {
                let waiter = &mut state.waiters[w];
                waiter.latch = false;
                waiter.soon &= !self.has(Clause::SoonEndsBeforeTheLook);
                waiter.at = At::Begin;
            }
            Step::TimeIsUp(w) => {
                state.leave -= 1;
                state.waiters[w].soon = false;
                state.waiters[w].at = At::Leaving;
            }
            Step::Cancel(w) => {
                state.leave -= 1;
                state.waiters[w].soon = false;
                state.waiters[w].at = At::Over;
                if self.has(Clause::ErrorHandsOn) {
                    state.wake_one(|_| true);
                }
            }
            Step::HandOn(w) => {
                state.waiters[w].at = At::Over;
                let (sees, _) = self.visible(&state);
                if self.has(Clause::HandsOn) && (sees & !state.done != 0 || state.waiters[w].latch) {
                    state.wake_one(|_| true);
                }
            }
            Step::Link(c) => state.commits[c] = Stage::Open(Some(state.now)),
            Step::Commit(c) => {
                let Stage::Open(at) = state.commits[c] else { unreachable!() };
                state.commits[c] = Stage::Visible(at);
            }
            Step::Pay(c) => self.pay(&mut state, c),
            Step::Tick => {
                let idle = self.steps(&State { slow: 0, ..state.clone() }).contains(&Step::Tick);
                state.slow -= u8::from(!idle);
                state.now += 1;
            }
        }
        state
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let steps = self.steps(&State { slow: 0, ..state.clone() });
        let idle = steps.is_empty() || steps.contains(&Step::Tick);
        let late = |(w, waiter): (usize, &Waiter)| {
            let (sees, links) = self.visible(state);
            let asleep = matches!(waiter.at, At::Asleep { .. });
            asleep
                && self.due(sees & !state.done, state.now).any(|t| self.is_of_use(t, links, self.waiters[w]))
        };
        (idle && state.waiters.iter().enumerate().any(late))
            .then_some("somebody sleeps beside what is due and of use to him")
    }

    fn left_lying(&self, _end: &State) -> Option<&'static str> {
        None
    }
}

impl Due {
    /// What has been committed: the things, and the links to the first.
    fn visible(&self, state: &State) -> (u8, u8) {
        let is_there = |(_, stage): &(usize, &Stage)| !matches!(stage, Stage::Open(_));
        let all: u8 = state.commits.iter().enumerate().filter(is_there).map(|(c, _)| 1 << c).sum();
        (all & ((1 << self.things.len()) - 1), all >> self.things.len())
    }

    /// Those of the things that are due by then.
    fn due(&self, things: u8, now: Time) -> impl Iterator<Item = usize> {
        let is_due = move |t: &usize| things & 1 << t != 0 && self.things[*t].due <= now;
        (0..self.things.len()).filter(is_due)
    }

    fn is_of_use(&self, thing: usize, links: u8, action: Action) -> bool {
        let by_link = |(l, linked): (usize, &Action)| links & 1 << l != 0 && *linked == action;
        self.things[thing].of_use_to == Some(action)
            || thing == 0 && self.links.iter().enumerate().any(by_link)
    }

    /// The actions that a thing concerns.
    fn concerned(&self, thing: usize, links: u8) -> Vec<Action> {
        let linked = self.links.iter().enumerate().filter(|(l, _)| thing == 0 && links & 1 << l != 0);
        linked.map(|(_, action)| *action).chain([self.things[thing].concerns]).collect()
    }

    fn look(&self, state: &mut State, w: usize, pace: Time) {
        let Waiter { at: At::HasSnapshot(at), sees, links, told, .. } = state.waiters[w] else {
            unreachable!()
        };
        let own = self.waiters[w];
        let due: Vec<usize> = self.due(sees & !state.done, at).collect();
        if let Some(mine) = due.iter().find(|t| self.is_of_use(**t, links, own)) {
            state.done |= 1 << mine;
            (state.waiters[w].at, state.waiters[w].soon) = (At::Leaving, false);
            return;
        }
        let untold = |t: &&usize| self.things[**t].due > told || !self.has(Clause::TellsOnce);
        let tells: Vec<usize> = due.iter().filter(untold).copied().collect();
        for thing in &tells {
            if self.has(Clause::Tells) {
                for action in self.concerned(*thing, links) {
                    // Of their own action others have been woken as he has, or know by themselves.
                    if action != own || !self.has(Clause::TellsOnce) {
                        state.wake_one(|other| other != w && self.waiters[other] == action);
                    }
                }
            }
            state.waiters[w].told = state.waiters[w].told.max(self.things[*thing].due);
        }
        let next = (0..self.things.len()).filter(|t| sees & 1 << t != 0).map(|t| self.things[t].due);
        let next = next.filter(|due| *due > at && self.has(Clause::KnowsWhenItIsDue)).min();
        let until = next.unwrap_or(Time::MAX).min(at + pace);
        state.waiters[w].soon = until <= state.now + SOON;
        state.waiters[w].at = At::Asleep { until };
    }

    fn pay(&self, state: &mut State, c: usize) {
        let Stage::Visible(linked_at) = state.commits[c] else { unreachable!() };
        state.commits[c] = Stage::Over;
        let now = state.now;
        if let Some(thing) = self.things.get(c) {
            let ahead = thing.due.saturating_sub(now);
            let in_time = ahead >= LONGEST || ahead >= SOON && state.waiters.iter().any(|w| w.soon);
            if ahead == 0 && self.has(Clause::AllHearOfWhatHasPassed) {
                state.waiters.iter_mut().for_each(|waiter| waiter.latch = true);
            } else if !in_time && self.has(Clause::OneHears) {
                state.wake_one(|_| true);
            }
            return;
        }
        let asked_at = if self.has(Clause::LinkAsksAtCommit) { Some(now) } else { linked_at };
        if self.has(Clause::LinkWakes) && asked_at.is_some_and(|at| self.things[0].due <= at) {
            let action = self.links[c - self.things.len()];
            state.wake_one(|w| self.waiters[w] == action);
        }
    }
}

impl State {
    /// Wakes the last of those who are registered, and not awake already.
    fn wake_one(&mut self, who: impl Fn(usize) -> bool) {
        let registered = |(w, waiter): &(usize, &mut Waiter)| {
            who(*w) && !waiter.latch && !matches!(waiter.at, At::Leaving | At::Over)
        };
        if let Some((_, waiter)) = self.waiters.iter_mut().enumerate().rev().find(registered) {
            waiter.latch = true;
        }
    }
}
