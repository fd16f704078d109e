//! Calls that sleep for work, found by the name of their actor, and ended from another session.
//!
//! A call registers for that when it goes to sleep for the first time: one that finds work at once pays nothing. It registers as
//! asleep ([`asleep`]), then as one of its actor's and its role's ([`calls_of`]). The session that stops it looks under the latter,
//! *marks* the session that it finds ([`mark_of`]), and sets its latch.
//!
//! **No stop is missed.** The mark is there before the latch is set, and the call looks for it after its last reset of the latch,
//! right before it sleeps. So either it finds the mark, or the latch that is set after that ends its sleep, and it looks again.
//! (What resets the latch in between, a lock on a table or the look after the client, comes before that look for the mark.)
//!
//! **No wake-up is lost.** A call that wakes by a mark looks for work before it finds the mark, and keeps what it is granted; what came
//! after that look it hands on when it leaves, as each call does.
//!
//! **No later call is stopped.** The mark stays until the call has given up its registration as asleep, which says the same whether
//! the session is in a transaction or between two. The next call of this session and actor goes to sleep, and registers, once the
//! mark is gone.
//!
//! **What counts is what the mark has ended.** A call that finds the mark before it sleeps comes back with nothing, and says so: it
//! registers as *stopped* ([`stopped`]) before it gives up its registration as asleep, and stays so until the mark is gone. So a
//! session that finds it asleep no more knows which it was. (As one of its actor's it gives up before: the next to stop that does not
//! find it.) A call that is granted something meanwhile, whose time is up, or that an
//! error ends does not say so.

use std::time::{Duration, Instant};

use super::channels::{ASLEEP, MARKED, OF_ACTOR, STOPPED};
use super::waiters::Registration;
use crate::pg::caller::Role;
use crate::pg::latch::{self, Channel, HowMany};
use crate::pg::lock::Key;
use crate::pg::session::{check_for_interrupts, nap};

/// How long a session that stops calls waits for them, and a call for a mark of an earlier one to go.
const PATIENCE: Duration = Duration::from_secs(2);

/// How soon it looks again.
const LOOK: Duration = Duration::from_millis(1);

/// Calls of this actor and this role.
pub(crate) fn calls_of(actor_id: &str, role: Role) -> Channel {
    Channel { kind: OF_ACTOR, number: Key::new(&[actor_id, &role.to_u32().to_string()]).number() }
}

/// A call of this actor in the session with this process id.
fn asleep(actor_id: &str, pid: i32) -> Channel {
    Channel { kind: ASLEEP, number: Key::new(&[actor_id, &pid.to_string()]).number() }
}

/// The mark for such a call, which the session has that stops it.
fn mark_of(actor_id: &str, pid: i32) -> Channel {
    Channel { kind: MARKED, ..asleep(actor_id, pid) }
}

/// Such a call that ends since it was marked.
fn stopped(actor_id: &str, pid: i32) -> Channel {
    Channel { kind: STOPPED, ..asleep(actor_id, pid) }
}

/// What a call that waits for work may be stopped by.
pub(crate) struct Stop {
    actor_id: String,
    role: Role,
    /// Since it has gone to sleep for the first time.
    registered: Option<Registration>,
    /// It has found a mark, and ends.
    is_stopped: bool,
}

impl Stop {
    /// For a call of this actor and this role.
    pub(crate) fn of(actor_id: &str, role: Role) -> Self {
        Stop { actor_id: actor_id.to_owned(), role, registered: None, is_stopped: false }
    }

    /// Whether another session has stopped the call. To be asked right before it sleeps; `level`: the subtransaction that it is in.
    pub(crate) fn is_marked(&mut self, level: i32) -> bool {
        let me = latch::my_pid();
        let mark = mark_of(&self.actor_id, me);
        if self.registered.is_none() {
            wait_while(|| latch::is_used(mark));
            let channels = vec![asleep(&self.actor_id, me), calls_of(&self.actor_id, self.role)];
            self.registered = Some(Registration::new(channels, level));
        }
        self.is_stopped = latch::is_used(mark);
        self.is_stopped
    }

    /// Whether the call has found a mark.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// To be called as the call ends; `level` as before.
    pub(crate) fn leave(self, level: i32) {
        let me = latch::my_pid();
        let said = self.is_stopped.then(|| Registration::new(vec![stopped(&self.actor_id, me)], level));
        drop(self.registered);
        if said.is_some() {
            wait_while(|| latch::is_used(mark_of(&self.actor_id, me)));
        }
    }
}

/// Ends the calls of an actor that sleep for work, in sessions with one of these roles; how many it has ended.
pub(crate) fn stop(actor_id: &str, roles: impl Iterator<Item = Role>) -> usize {
    let level = latch::nest_level();
    let mut marked: Vec<(i32, Registration)> = Vec::new();
    for channel in roles.map(|role| calls_of(actor_id, role)) {
        for pid in latch::pids(channel) {
            marked.push((pid, Registration::new(vec![mark_of(actor_id, pid)], level)));
        }
        latch::wake(channel, HowMany::All);
    }
    let mut ended = 0;
    wait_while(|| {
        // Each mark goes with the call that it was for.
        marked.retain(|(pid, _)| {
            let sleeps_on = latch::is_used(asleep(actor_id, *pid));
            ended += usize::from(!sleeps_on && latch::is_used(stopped(actor_id, *pid)));
            sleeps_on
        });
        !marked.is_empty()
    });
    ended
}

/// Waits while that is so, not for long.
fn wait_while(mut it_is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while it_is_so() && Instant::now() < until {
        check_for_interrupts();
        nap(LOOK);
    }
}
