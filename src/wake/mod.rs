//! Which calls the end of a transaction has to wake, and which call waits in this backend.
//!
//! **No wake-up is lost** of a commit that calls back; for others see [`longest_sleep`]. A waiting call registers, resets its
//! latch, looks, sleeps. The look sees what is committed before it; what is committed after it finds the registration. Of several
//! waiting calls a commit wakes as many as it brought work for. So a call that comes back owes three things to those
//! that go on sleeping: a wake-up that came after its last look; one for what is left, if it took all it could; and what it alone
//! may have known, which is when the next thing is due. [`hand_on`] pays when a call ends, [`registered::give_up`] when an error
//! ends it. What the server itself does to a latch in the middle of a look is made up for by short sleeps (`verbs::pace`).
//!
//! **Few calls are woken needlessly.** For what is due later only those calls need a wake-up that would not look in time
//! by themselves. They look within [`longest_sleep`], and calls for work that look within [`LOOKS_SOON`] are registered for that.

mod channels;
pub(crate) mod lately;
mod notes;
mod owed;
mod registered;
mod stop;
mod waiters;

pub(crate) use channels::{
    LOOKS_SOON, channels_for_names, channels_for_tasks, channels_for_work, is_any_call_waiting,
    is_post_wanted, is_waited_for, longest_sleep, post_is_free, settled_channel, worker_leaves,
};
pub(crate) use notes::{
    HORIZON, all_look, gone, held, let_one_look, new_number, ready, ready_for_all, ready_later, settled,
    signals_left, stay_registered, taken, timer,
};
pub(crate) use stop::{Stop, stop};
pub(crate) use waiters::{Registration, begin_look, end_look, hand_on, may_sleep, pass_on, passed_over};
