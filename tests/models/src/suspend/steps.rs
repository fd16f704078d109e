//! What the steps do.

use std::collections::BTreeMap;

use super::{
    At, Backend, Clause, Count, Counter, Edge, Ends, Entry, Purpose, Signal, Standing, State, Suspend,
    WORKER, WaitNo, Who, each,
};

impl Suspend {
    /// `suspend::block`.
    pub(super) fn block(&self, state: &mut State) {
        let Some(entry) = state.entry.as_mut() else { unreachable!() };
        entry.removed = Some(WORKER);
        let failures = entry.failures;
        state.lives += 1;
        let life = state.lives;
        state.counter = Some(Counter {
            life,
            wait_no: if self.has(Clause::NewNumber) { life } else { 1 },
            suspended: true,
            now: Count { remaining: 1, spare: 0, failures },
            by: Some(WORKER),
            holder: Some(WORKER),
            changed: None,
        });
        state.backends[WORKER].at = At::Holding(0);
    }

    /// `suspend::count` and `suspend::go_on_or_wait`.
    pub(super) fn link(&self, state: &mut State) {
        let wanted = state.there(self.waits[state.backends[WORKER].suspended]);
        let ended = state.backends[WORKER].ended;
        let Some(mut counter) = state.counter else { unreachable!() };
        let stored = |state: &State, after| {
            state.edges.iter().position(|e| e.after == after && e.by.is_none() && e.dropped.is_none())
        };
        let (mut unsettled, mut lost) = (0, false);
        for after in each(wanted) {
            let open = ended & 1 << after == 0;
            unsettled += i8::from(open);
            match stored(state, after) {
                Some(e) if open => state.edges[e].wait_no = counter.wait_no,
                Some(_) => {}
                None => {
                    counter.now.failures += u8::from(!open);
                    lost |= !open && self.loses & 1 << after != 0;
                    let wait_no = counter.wait_no;
                    state.edges.push(Edge { after, wait_no, by: Some(WORKER), dropped: None });
                }
            }
        }
        counter.now.remaining = unsettled;
        state.counter = Some(counter);
        if lost || unsettled == 0 {
            let standing = if lost { Standing::Aborted } else { Standing::Ready };
            state.freed.push((
                WORKER,
                Entry { standing, failures: counter.now.failures, removed: None, locked: None },
            ));
            state.counter = None;
        }
        state.sort();
        state.backends[WORKER].at = At::Open;
    }

    /// `dependency::waiting_for`.
    pub(super) fn read_edges(&self, state: &mut State, b: Who) {
        let set = self.ends[b - 1];
        let mut news: BTreeMap<WaitNo, Ends> = BTreeMap::new();
        for edge in state.edges.iter().filter(|e| e.by.is_none() && set & 1 << e.after != 0) {
            let lost = u8::from(self.loses & 1 << edge.after != 0);
            news.entry(edge.wait_no).or_default().add(Ends { satisfied: 1 - lost, lost });
        }
        state.backends[b].news = news;
        state.backends[b].at = if self.has(Clause::EdgesAfterRemoval) { At::Looking } else { At::Removing };
        self.skip_if_no_news(&mut state.backends[b]);
    }

    pub(super) fn skip_if_no_news(&self, backend: &mut Backend) {
        if backend.at == At::Looking && backend.news.is_empty() {
            backend.at = At::Open;
        }
    }

    /// `blocked::count_one`.
    pub(super) fn count_one(&self, state: &mut State, b: Who) {
        let backend = &mut state.backends[b];
        let Some((wait_no, ends)) = backend.news.pop_first() else { unreachable!() };
        let same = |life: u8| state.counter.is_some_and(|counter| counter.life == life);
        match backend.seen {
            Some((_, seen)) if seen != wait_no && self.has(Clause::CompareInCount) => {}
            Some((life, _)) if same(life) => {
                if state.can_lock(b) {
                    self.count(state, b, ends);
                } else {
                    state.backends[b].busy.insert(wait_no, ends);
                }
            }
            _ => {
                backend.not_there.insert(wait_no, ends);
            }
        }
        let backend = &mut state.backends[b];
        if !backend.news.is_empty() {
            return;
        }
        backend.seen = None;
        if backend.busy.is_empty() && backend.not_there.is_empty() {
            self.go_on(state, b);
        } else {
            backend.at = At::LeavingSignals;
        }
    }

    /// `signal::defer`.
    pub(super) fn leave_signals(&self, state: &mut State, b: Who) {
        let still_blocked = state.committed_counter().is_some();
        let backend = &mut state.backends[b];
        let not_there = std::mem::take(&mut backend.not_there);
        let mut left = std::mem::take(&mut backend.busy);
        left.extend(not_there.into_iter().filter(|_| still_blocked));
        backend.touched |= !left.is_empty();
        state.signals.extend(left.into_iter().map(|(wait_no, ends)| Signal {
            wait_no,
            ends,
            by: Some(b),
            taken: None,
        }));
        state.sort();
        self.go_on(state, b);
    }

    /// `blocked::change`, of a counter that can be locked and is the right one.
    fn count(&self, state: &mut State, b: Who, ends: Ends) {
        let Some(counter) = state.counter.as_mut() else { unreachable!() };
        let before = counter.changed.flatten().unwrap_or(counter.now);
        let after = Count {
            remaining: before.remaining - ends.satisfied as i8,
            spare: before.spare - ends.lost as i8,
            failures: before.failures + ends.all(),
        };
        let waits = after.remaining > 0 && (ends.lost == 0 || after.spare >= 0);
        counter.holder = Some(b);
        counter.changed = Some(waits.then_some(after));
        state.backends[b].touched = true;
        state.backends[b].over = (!waits).then_some(after);
    }

    /// What comes after counting: a task that waits no more goes on.
    pub(super) fn go_on(&self, state: &mut State, b: Who) {
        let Some(over) = state.backends[b].over else {
            state.backends[b].at = At::Open;
            return;
        };
        let some_suffice = self.inserted.is_some();
        if some_suffice && over.remaining + over.spare > 0 && self.has(Clause::DropOfSome) {
            state.backends[b].at = At::Dropping;
        } else {
            self.release(state, b);
        }
    }

    pub(super) fn release(&self, state: &mut State, b: Who) {
        if let Some(Count { remaining, failures, .. }) = state.backends[b].over.take() {
            let goes_on = remaining <= 0 || state.backends[b].time_is_up;
            let standing = if goes_on { Standing::Ready } else { Standing::Aborted };
            state.freed.push((b, Entry { standing, failures, removed: None, locked: None }));
        }
        state.backends[b].at = At::Open;
    }

    /// `signal::TAKE`: removes the signals that a snapshot shows, and returns those that count.
    fn take(&self, state: &mut State, b: Who, of_wait: Option<WaitNo>) -> (bool, Ends) {
        let Some(wait_no) = state.counter.map(|counter| counter.wait_no) else {
            return (false, Ends::default());
        };
        let (mut any, mut ends) = (false, Ends::default());
        for signal in &mut state.signals {
            let visible = signal.by.is_none_or(|by| by == b) && signal.taken.is_none();
            if !visible || of_wait.is_some_and(|of| of != signal.wait_no) {
                continue;
            }
            (any, signal.taken) = (true, Some(b));
            if signal.wait_no == wait_no || !self.has(Clause::CompareInFold) {
                ends.add(signal.ends);
            }
        }
        state.signals.retain(|signal| signal.by.is_none() || signal.by != signal.taken);
        state.sort();
        (any, ends)
    }

    /// `fold::try_lock_and_count`; whether it has changed anything.
    pub(super) fn try_lock_and_count(&self, state: &mut State, b: Who) -> bool {
        if !state.can_lock(b) {
            return false;
        }
        if let Some(counter) = state.counter.as_mut() {
            counter.holder = Some(b);
        }
        state.backends[b].touched = true;
        let (any, ends) = self.take(state, b, None);
        if ends.all() > 0 {
            self.count(state, b, ends);
        }
        any
    }

    /// `suspended::OVERDUE`.
    pub(super) fn lock_overdue(&self, state: &mut State) {
        let b = self.upkeep();
        state.time_outs -= 1;
        if self.has(Clause::LockOverdue) {
            let Some(counter) = state.counter.as_mut() else { unreachable!() };
            counter.holder = Some(b);
        }
        state.backends[b].touched = true;
        state.backends[b].time_is_up = true;
        state.backends[b].at = At::Folding;
        if !self.has(Clause::FoldBeforeDrop) {
            self.go_on_after_time_out(state, b);
        }
    }

    /// `fold::of`.
    pub(super) fn fold(&self, state: &mut State) {
        let b = self.upkeep();
        self.try_lock_and_count(state, b);
        if state.backends[b].over.is_some() {
            state.backends[b].time_is_up = false;
            self.go_on(state, b);
        } else {
            self.go_on_after_time_out(state, b);
        }
    }

    fn go_on_after_time_out(&self, state: &mut State, b: Who) {
        if self.has(Clause::DropAfterTimeOut) {
            state.backends[b].at = At::Dropping;
        } else {
            self.release_overdue(state, b);
        }
    }

    /// `live::remove`, of what still waits, and `ready::release`.
    fn release_overdue(&self, state: &mut State, b: Who) {
        if let Some(counter) = state.counter.as_mut() {
            state.backends[b].over = Some(counter.changed.flatten().unwrap_or(counter.now));
            (counter.holder, counter.changed) = (Some(b), Some(None));
        }
        self.release(state, b);
    }

    /// Whether a snapshot shows a signal for the wait of this counter.
    fn sees_signal(&self, state: &State, b: Who) -> bool {
        let of = |s: &Signal| state.counter.is_some_and(|counter| counter.wait_no == s.wait_no);
        state.signals.iter().any(|s| of(s) && s.by.is_none_or(|by| by == b) && s.taken.is_none())
    }

    /// `dependency::DROP_OPEN`.
    pub(super) fn drop_open(&self, state: &mut State, b: Who) {
        let time_is_up = state.backends[b].time_is_up;
        let folds = self.has(Clause::FoldBeforeDrop) && self.has(Clause::OneSnapshot);
        if time_is_up && folds && self.sees_signal(state, b) {
            state.backends[b].at = At::Folding;
            return;
        }
        let settled = |after: u8| {
            let awaited = &state.awaited[after as usize];
            awaited.ended || awaited.removed == Some(b)
        };
        for edge in state.edges.iter_mut().filter(|e| e.by.is_none() && e.dropped.is_none()) {
            if !settled(edge.after) {
                edge.dropped = Some(b);
            }
        }
        if self.has(Clause::OneSnapshot) && !time_is_up {
            let wait_no = state.counter.map(|counter| counter.wait_no);
            let (_, ends) = self.take(state, b, wait_no);
            if let Some(over) = state.backends[b].over.as_mut() {
                over.failures += ends.all();
            }
        }
        state.sort();
        if time_is_up {
            self.release_overdue(state, b);
        } else {
            self.release(state, b);
        }
    }

    /// `fold::some`.
    pub(super) fn collect(&self, state: &mut State) {
        let b = self.upkeep();
        state.woken = false;
        self.try_lock_and_count(state, b);
        self.go_on(state, b);
    }

    /// `unsent::look`: whether what was sent, committed or not, would end the wait.
    fn all_sent(&self, state: &State) -> bool {
        let mut sent = Ends::default();
        state.signals.iter().filter(|s| s.taken.is_none()).for_each(|s| sent.add(s.ends));
        let lowest = state.counter.map(|counter| {
            let changed = counter.changed.flatten().unwrap_or(counter.now);
            counter.now.remaining.min(changed.remaining)
        });
        sent.all() > 0 && lowest.is_some_and(|lowest| sent.lost > 0 || lowest <= sent.all() as i8)
    }

    /// `commit::before_commit`, and the commit if that has counted nothing.
    pub(super) fn look_and_commit(&self, state: &mut State, b: Who) {
        let looks = state.backends[b].touched && self.has(Clause::LookBeforeCommit);
        if looks && self.all_sent(state) && self.try_lock_and_count(state, b) {
            self.go_on(state, b);
            return;
        }
        let deletes = self.is_deletion(b);
        state.commit(b, deletes);
        let time_is_up = state.backends[b].time_is_up;
        if b == WORKER {
            let suspended = state.backends[b].suspended;
            let after = state.there(self.waits[suspended]);
            let required = after.count_ones() as u8;
            state.purpose = Purpose { after, required, suspended: true, time_is_up: false };
            state.awaited.iter_mut().for_each(|awaited| awaited.shared = false);
            state.backends[b] = Backend { suspended: suspended + 1, ..Backend::new() };
        } else if b == self.upkeep() {
            state.purpose.time_is_up |= time_is_up;
            state.backends[b] = Backend::new();
        } else {
            state.purpose.after = state.there(state.purpose.after);
            if state.purpose.suspended {
                state.purpose.required = state.purpose.after.count_ones() as u8;
            }
            state.backends[b] = Backend { at: At::Over, ..Backend::new() };
        }
    }

    /// A rollback. What was to be done is done once more.
    pub(super) fn roll_back(&self, state: &mut State, b: Who) {
        state.rollbacks -= 1;
        state.woken |= state.backends[b].touched && self.has(Clause::RollbackWakes);
        state.time_outs += u8::from(state.backends[b].time_is_up);
        state.roll_back(b);
        if b == WORKER {
            state.awaited.iter_mut().for_each(|awaited| awaited.shared = false);
        }
        state.backends[b] = Backend { suspended: state.backends[b].suspended, ..Backend::new() };
    }
}
