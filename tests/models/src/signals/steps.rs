//! What the steps do.

use super::{
    At, BESIDE, Backend, Child, Clause, Delta, Fold, Role, Signal, Signals, State, Then, Touch, WITHIN, each,
};

impl Signals {
    /// Of the dependencies of a child, how many there are, and how many have ended by a commit.
    pub(super) fn dependencies(&self, state: &State, child: Child) -> (u8, u8) {
        let returns = self.roles.iter().zip(&state.backends).filter_map(|(role, backend)| match role {
            Role::Return(set) | Role::Lose(set) if set & 1 << child != 0 => Some(backend.settled),
            _ => None,
        });
        let spontaneous = self.spontaneous.iter().filter(|(_, set)| **set & 1 << child != 0);
        let ended: Vec<bool> = returns
            .chain(spontaneous.map(|(before, _)| state.counters[*before as usize].committed.is_none()))
            .collect();
        (ended.len() as u8, ended.iter().filter(|ended| **ended).count() as u8)
    }

    /// Whether one of them has ended in a way that the child does not survive.
    pub(super) fn is_lost(&self, state: &State, child: Child) -> bool {
        let ended = self.roles.iter().zip(&state.backends).filter(|(_, backend)| backend.settled);
        ended.into_iter().any(|(role, _)| matches!(role, Role::Lose(set) if set & 1 << child != 0))
    }

    /// One counter, or what could not be counted, or the next level, or what comes after.
    pub(super) fn go_on_counting(&self, state: &mut State, b: usize, then: Then) {
        let backend = &mut state.backends[b];
        if !backend.deltas.is_empty() {
            backend.at = At::Counting(then);
            return;
        }
        for child in each(std::mem::take(&mut backend.to_note)) {
            backend.touch(child, Touch::Locked);
        }
        if !backend.not_had.is_empty() {
            backend.at = At::Deferring(then);
            return;
        }
        for over in each(std::mem::take(&mut backend.over)) {
            for child in each(self.spontaneous.get(&over).copied().unwrap_or(0)) {
                backend.deltas.entry(child).or_default().ended += 1;
            }
        }
        if !backend.deltas.is_empty() {
            backend.at = At::Counting(then);
            return;
        }
        match then {
            Then::Open => backend.at = At::Open,
            Then::Fold(fold) => self.counted(state, b, fold, true),
        }
    }

    /// What follows an attempt to count.
    pub(super) fn counted(&self, state: &mut State, b: usize, fold: Fold, changed: bool) {
        let backend = &mut state.backends[b];
        let locked = std::mem::take(&mut backend.locked);
        let asked_later = fold == Fold::Asked && !changed && !self.has(Clause::AskBeforeTrying);
        if asked_later {
            let free = state.no_holder_commits(b, state.backends[b].all_sent);
            state.backends[b].free_to_leave = free;
        }
        let backend = &mut state.backends[b];
        let others = backend.all_sent & !locked;
        if fold == Fold::Asked {
            backend.leaves = others != 0;
        }
        match fold {
            Fold::Collect => backend.at = At::Open,
            Fold::First => {
                backend.counted_all = !changed;
                self.look_again(backend);
            }
            Fold::Asked | Fold::Only if changed => self.look_again(backend),
            Fold::Asked if others != 0 && !backend.free_to_leave && self.has(Clause::AskForHolder) => {
                backend.left_to_others = others;
                self.wait(backend);
            }
            Fold::Asked if locked == 0 => backend.at = At::Committing,
            Fold::Asked => {
                backend.ours = locked;
                backend.at = if self.has(Clause::OnlyOne) { At::HoldingOnly } else { At::Committing };
            }
            Fold::Only => backend.at = At::Committing,
        }
    }

    pub(super) fn wait(&self, backend: &mut Backend) {
        if self.has(Clause::NoSignWhileWaiting) {
            backend.give_up();
        }
        backend.at = At::Napping;
    }

    /// The next of the `Steps`.
    pub(super) fn look_again(&self, backend: &mut Backend) {
        backend.sent.clear();
        backend.lowest.clear();
        backend.all_sent = 0;
        backend.free_to_leave = false;
        backend.leaves = false;
        backend.at = match () {
            () if backend.left_to_others != 0 => At::AskingAgain,
            () if backend.ours != 0 => At::WantingOnly,
            () if self.has(Clause::SignBeforeLook) => At::TakingSigns,
            () => self.first_read(),
        };
    }

    pub(super) fn first_read(&self) -> At {
        if self.has(Clause::SignalsBeforeCounters) { At::ReadingSignals } else { At::ReadingCounters }
    }

    pub(super) fn read_signals(&self, state: &mut State, b: usize) {
        let sent = (0..state.counters.len() as Child)
            .map(|child| {
                let there = state.signals.iter().filter(|s| s.child == child);
                there
                    .filter(|s| {
                        s.taken.is_none() || !self.has(Clause::DoomedAreNotSent) && s.taken != Some(b)
                    })
                    .filter(|s| s.by.is_none_or(|by| by == b) || self.has(Clause::DirtySignals))
                    .fold(Delta::default(), |sent, s| Delta {
                        ended: sent.ended + s.ended,
                        lost: sent.lost | s.lost,
                    })
            })
            .collect();
        state.backends[b].sent = sent;
    }

    pub(super) fn read_counters(&self, state: &mut State, b: usize) {
        let lowest = state.counters.iter().map(|counter| match counter.changed {
            Some(own) if counter.holder == Some(b) => own,
            Some(Some(lower)) if self.has(Clause::LowestVersion) => {
                counter.committed.map(|left| left.min(lower))
            }
            _ => counter.committed,
        });
        state.backends[b].lowest = lowest.collect();
    }

    /// What the look has come to, when both have been read.
    pub(super) fn judge(&self, state: &mut State, b: usize) {
        let backend = &mut state.backends[b];
        backend.all_sent = each(backend.touched())
            .filter(|child| {
                let sent = backend.sent[*child as usize];
                let enough = |left: u8| sent.lost || left <= sent.ended;
                sent.ended > 0 && backend.lowest[*child as usize].is_some_and(enough)
            })
            .map(|child| 1 << child)
            .sum();
        backend.sent.clear();
        backend.lowest.clear();
        if !self.has(Clause::SignBeforeLook) {
            // Too late, but taken all the same.
            backend.at = At::TakingSigns;
            return;
        }
        self.after_look(backend);
    }

    pub(super) fn after_look(&self, backend: &mut Backend) {
        backend.at = match () {
            () if backend.all_sent == 0 => At::Committing,
            () if !backend.counted_all && self.has(Clause::CountFirst) => {
                backend.give_up();
                At::Locking(Fold::First)
            }
            () if self.has(Clause::AskBeforeTrying) => At::Asking,
            () => At::Locking(Fold::Asked),
        };
    }

    pub(super) fn lock(&self, state: &mut State, b: usize, fold: Fold) {
        if !self.has(Clause::LockBeforeTake) {
            let seen =
                (0..state.counters.len() as Child).map(|c| state.visible(b, c).count() as u8).collect();
            state.backends[b].seen = seen;
        } else {
            self.lock_now(state, b, fold);
        }
        state.backends[b].at = At::Taking(fold);
    }

    pub(super) fn lock_now(&self, state: &mut State, b: usize, fold: Fold) {
        let wanted = match fold {
            Fold::Collect => (0..state.counters.len() as Child)
                .filter(|c| state.visible(b, *c).next().is_some())
                .map(|c| 1 << c)
                .sum(),
            Fold::First | Fold::Asked => state.backends[b].all_sent,
            Fold::Only => state.backends[b].ours,
        };
        state.backends[b].locked = 0;
        for child in each(wanted) {
            if state.can_lock(b, child) {
                state.counters[child as usize].holder = Some(b);
                state.backends[b].locked |= 1 << child;
                if self.has(Clause::EachLockLooks) || fold != Fold::Collect {
                    state.backends[b].touch(child, Touch::Locked);
                }
            }
        }
    }

    pub(super) fn take(&self, state: &mut State, b: usize, fold: Fold) {
        if !self.has(Clause::LockBeforeTake) {
            self.lock_now(state, b, fold);
        }
        let most = std::mem::take(&mut state.backends[b].seen);
        for child in each(state.backends[b].locked) {
            let most = most.get(child as usize).map_or(usize::MAX, |most| *most as usize);
            let taken: Vec<usize> = state.visible(b, child).take(most).collect();
            for s in taken {
                state.signals[s].taken = Some(b);
                let delta = state.backends[b].deltas.entry(child).or_default();
                delta.ended += state.signals[s].ended;
                delta.lost |= state.signals[s].lost;
            }
        }
        state.signals.retain(|s| s.by != Some(b) || s.taken != Some(b));
        state.signals.sort_unstable();
        if state.backends[b].deltas.is_empty() {
            self.counted(state, b, fold, false);
        } else {
            state.backends[b].at = At::Counting(Then::Fold(fold));
        }
    }

    pub(super) fn count_one(&self, state: &mut State, b: usize, then: Then) {
        let Some((child, delta)) = state.backends[b].deltas.pop_first() else { unreachable!() };
        if state.can_lock(b, child) {
            let counter = &mut state.counters[child as usize];
            let before = counter.changed.flatten().or(counter.committed).unwrap_or(0);
            let left = if delta.lost { 0 } else { before.saturating_sub(delta.ended) };
            counter.holder = Some(b);
            counter.changed = Some((left > 0).then_some(left));
            let backend = &mut state.backends[b];
            match left {
                0 => backend.over |= 1 << child,
                _ if self.has(Clause::NotedAtOnce) => backend.touch(child, Touch::Locked),
                _ => backend.to_note |= 1 << child,
            }
        } else {
            state.backends[b].not_had.insert(child, delta);
        }
        self.go_on_counting(state, b, then);
    }

    pub(super) fn defer(&self, state: &mut State, b: usize, then: Then) {
        for (child, Delta { ended, lost }) in std::mem::take(&mut state.backends[b].not_had) {
            // Without a counter it does not wait any more.
            if state.counters[child as usize].committed.is_some() {
                state.signals.push(Signal { child, ended, lost, by: Some(b), taken: None });
                state.backends[b].touch(child, Touch::LeftSignal);
            }
        }
        state.signals.sort_unstable();
        self.go_on_counting(state, b, then);
    }

    pub(super) fn begin_call(&self, state: &mut State, b: usize) {
        match self.roles[b] {
            Role::Return(set) | Role::Lose(set) => {
                let delta = Delta { ended: 1, lost: matches!(self.roles[b], Role::Lose(_)) };
                state.backends[b].deltas = each(set).map(|child| (child, delta)).collect();
                self.go_on_counting(state, b, Then::Open);
            }
            Role::Lock(child) => {
                state.counters[child as usize].holder = Some(b);
                if self.has(Clause::EachLockLooks) {
                    state.backends[b].touch(child, Touch::Locked);
                }
                state.backends[b].at = At::Open;
            }
            Role::Collect => {
                state.woken = false;
                state.backends[b].at = At::Locking(Fold::Collect);
            }
        }
    }

    pub(super) fn take_signs(&self, state: &mut State, b: usize) {
        let touched = state.backends[b].touched();
        let all = each(touched).all(|child| match state.backends[b].touched[child as usize] {
            Touch::Locked if self.has(Clause::SignOfHolder) => state.hold(b, child, WITHIN),
            Touch::LeftSignal if !self.has(Clause::SignOfSignal) => true,
            _ => state.hold(b, child, BESIDE),
        });
        let backend = &mut state.backends[b];
        match () {
            () if !all => self.wait(backend),
            () if !self.has(Clause::SignBeforeLook) => self.after_look(backend),
            () => {
                backend.left_to_others = 0;
                backend.at = self.first_read();
            }
        }
    }

    /// The end of a transaction. `again`: it may begin once more.
    pub(super) fn over(&self, state: &mut State, b: usize, again: bool) {
        let settled = state.backends[b].settled;
        state.backends[b] = Backend::new(state.counters.len());
        state.backends[b].settled = settled;
        state.backends[b].at = if again { At::Idle } else { At::Over };
    }
}
