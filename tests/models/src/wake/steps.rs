//! What the steps do.

use super::{At, Channel, Clause, Role, State, Step, Wake, Whom};

impl Wake {
    /// One more of a list, or a new list, or the end.
    pub(super) fn go_on_waking(&self, state: &mut State, b: usize) {
        let Some(waking) = state.backends[b].waking.first_mut() else { return };
        let Some(list) = &waking.list else { return };
        let woken = waking.woken.count_ones() as usize;
        let enough = waking.there + woken - waking.before >= waking.limit;
        if waking.next < list.len() && !enough {
            return;
        }
        if woken == waking.before || !self.has(Clause::ListAgain) {
            let (whom, left) =
                (waking.whom, waking.limit.saturating_sub(waking.there.max(woken - waking.before)));
            state.backends[b].waking.remove(0);
            if matches!(whom, Whom::Last(Channel::Ready(_))) && left > 0 {
                // Before anything else that is to be done.
                state.wake(b, Whom::Highest, left);
                state.backends[b].waking.rotate_right(1);
            }
        } else {
            (waking.list, waking.next, waking.before) = (None, 0, woken);
        }
    }

    pub(super) fn end(&self, state: &mut State, b: usize, commits: bool) {
        let mut owes = Vec::new();
        let ready = |action| Whom::Last(Channel::Ready(action));
        if let Some(t) = state.backends[b].task.take() {
            let (role, task) = (self.roles[b], &mut state.tasks[t]);
            task.by = None;
            match role {
                Role::Insert(_) | Role::InsertWithLock(_) => {
                    task.ready = commits;
                    owes.extend(commits.then_some(ready(task.action)));
                }
                Role::Lock(_) => owes.extend(self.has(Clause::EndOfLockWakes).then_some(ready(task.action))),
                _ if commits => task.ready = false,
                _ => owes.extend(self.has(Clause::RollbackWakes).then_some(ready(task.action))),
            }
        }
        if state.is_registered(b) {
            state.unregister(b);
            // It may have been woken for a task just then.
            owes.extend(self.has(Clause::ErrorHandsOn).then_some(match self.channel(b) {
                Channel::Any => Whom::Highest,
                channel => Whom::Last(channel),
            }));
        }
        state.backends[b].owes = owes;
        state.backends[b].waking.clear();
        state.backends[b].at = At::Ended;
    }

    pub(super) fn pay(&self, state: &mut State, b: usize) {
        for whom in std::mem::take(&mut state.backends[b].owes) {
            state.wake(b, whom, 1);
        }
    }

    pub(super) fn hand_on(&self, state: &mut State, b: usize) {
        let own = Channel::Ready(self.action(b));
        if state.backends[b].latch && self.waits(b) {
            if self.has(Clause::HandOnWakeUp) {
                state.wake(b, Whom::Last(own), 1);
                state.wake(b, Whom::Highest, 1);
            }
            return;
        }
        let asleep = state.registered.iter().any(|(channel, who)| {
            *who != b && (*channel == own || *channel == Channel::Any) && !state.backends[*who].latch
        });
        let full = state.backends[b].task;
        let left = full.is_some_and(|own_task| state.visible(self.action(b)) & !(1 << own_task) != 0);
        if asleep && left && self.has(Clause::HandOnRest) {
            state.wake(b, Whom::Last(own), 1);
        }
    }

    pub(super) fn claim(&self, state: &mut State, b: usize) {
        let sees = std::mem::take(&mut state.backends[b].sees);
        let found = state.free(b, self.action(b)).find(|t| sees & 1 << t != 0);
        if let Some(t) = found {
            state.tasks[t].by = Some(b);
            state.backends[b].task = Some(t);
        }
        let woken = std::mem::take(&mut state.backends[b].woken);
        state.backends[b].at = match (found, self.waits(b)) {
            (Some(_), _) | (None, false) => At::Leaving,
            (None, true) => {
                if woken && self.channel(b) == Channel::Any && self.has(Clause::PassOn) {
                    state.wake(b, Whom::NextLower, 1);
                }
                At::InVain
            }
        };
    }

    /// What follows when no backend is left to be woken in between.
    pub(super) fn next(&self, state: &State, b: usize, steps: &mut Vec<Step>) {
        let backend = &state.backends[b];
        let registers_late = !self.has(Clause::RegisterBeforeLook);
        match backend.at {
            At::Begin if self.waits(b) && registers_late => steps.push(Step::ResetLatch(b)),
            At::Begin if self.waits(b) => steps.push(Step::Register(b)),
            At::Begin if matches!(self.roles[b], Role::Own(_)) => steps.push(Step::Snapshot(b)),
            At::Begin => {
                let lacks = |action| state.free(b, action).next().is_none();
                let there = !matches!(self.roles[b], Role::Lock(action) if lacks(action));
                steps.extend(there.then_some(Step::Work(b)));
            }
            At::Registered if self.has(Clause::ResetBeforeLook) => steps.push(Step::ResetLatch(b)),
            At::Registered | At::Reset => steps.push(Step::Snapshot(b)),
            At::HasSnapshot => steps.push(Step::Claim(b)),
            At::InVain if !state.is_registered(b) => steps.push(Step::Register(b)),
            At::InVain if !self.has(Clause::ResetBeforeLook) => steps.push(Step::ResetLatch(b)),
            At::InVain | At::Asleep => {
                steps.extend(backend.latch.then_some(Step::WakeUp(b)));
                steps.extend((state.time_outs > 0).then_some(Step::TimeIsUp(b)));
            }
            At::Leaving if state.is_registered(b) && self.has(Clause::UnregisterBeforeThat) => {
                steps.push(Step::Unregister(b));
            }
            At::Leaving => steps.push(Step::HandOn(b)),
            At::Unregistered => steps.push(Step::HandOn(b)),
            At::Open if state.is_registered(b) => steps.push(Step::Unregister(b)),
            At::Open => {
                steps.push(Step::Commit(b));
                steps.extend((state.rollbacks > 0).then_some(Step::RollBack(b)));
            }
            At::Ended if self.has(Clause::PayAfterLocks) => steps.push(Step::Unlock(b)),
            At::Ended => steps.push(Step::Pay(b)),
            At::Unlocked if self.has(Clause::PayAfterLocks) => steps.push(Step::Pay(b)),
            At::Unlocked => steps.push(Step::Unlock(b)),
            At::Over => {}
        }
    }
}
