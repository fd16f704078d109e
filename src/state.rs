//! The few enumerations that the queue is made of, and how they are spelt outside and stored inside.

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Aborted,
    Completed,
    /// Aborted, since there was no need of it: its cause is [`Cause::Skipped`].
    Skipped,
}

impl Outcome {
    /// As docs/reference spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Outcome::Aborted | Outcome::Skipped => "aborted",
            Outcome::Completed => "completed",
        }
    }

    /// As `settled.code` stores it.
    pub(crate) fn stored(self) -> i8 {
        match self {
            Outcome::Aborted | Outcome::Skipped => b'a' as i8,
            Outcome::Completed => b'c' as i8,
        }
    }

    /// From `settled.code`, which does not tell what was skipped, or from what [`outcome!`](crate::store::settled::outcome)
    /// reads, which does.
    pub(crate) fn from_stored(code: i8) -> Self {
        match code as u8 {
            b'a' => Outcome::Aborted,
            b'k' => Outcome::Skipped,
            _ => Outcome::Completed,
        }
    }

    /// Whether it is an abort, skipped or not.
    pub(crate) fn is_abort(self) -> bool {
        self != Outcome::Completed
    }
}

/// What ended a task; `settled.cause`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was cancelled.
    Cancelled,
    /// Its deadline passed, and no other try was to follow.
    Deadline,
    /// A dependency was lost, or too few were left of those that it needed.
    Dependency,
    /// It was not granted, or signalled, in time.
    Expired,
    /// It had no other try: it was given back, or taken from its worker.
    Exhausted,
    /// It shared the end of a task with the same key.
    Merged,
    /// It was completed by hand.
    Operator,
    /// Another task took its place, with its id or its unique key.
    Replaced,
    /// A signal came for it from outside.
    Signalled,
    /// It was to run after the abort of a task that has completed, or after one that was skipped.
    Skipped,
    /// It was spontaneous, and nothing was left to wait for.
    Spontaneous,
    /// The worker returned it.
    Worker,
}

impl Cause {
    /// Each with its letter in `settled.cause` and its name, which is the same wherever it is seen; `taskq._cause` has the
    /// names of those that abort once more, and a test compares them.
    const ALL: [(Cause, u8, &str); 12] = [
        (Cause::Cancelled, b'c', "cancelled"),
        (Cause::Deadline, b't', "timeout"),
        (Cause::Dependency, b'd', "dependency"),
        (Cause::Expired, b'e', "expired"),
        (Cause::Exhausted, b'x', "tries"),
        (Cause::Merged, b'm', "merged"),
        (Cause::Operator, b'o', "operator"),
        (Cause::Replaced, b'r', "replaced"),
        (Cause::Signalled, b'g', "signalled"),
        (Cause::Skipped, b'k', "skipped"),
        (Cause::Spontaneous, b's', "spontaneous"),
        (Cause::Worker, b'w', "returned"),
    ];

    /// The causes that a filter for aborts knows: a replaced task has no id any more.
    pub(crate) fn of_aborts() -> impl Iterator<Item = Cause> {
        use Cause::{Operator, Replaced, Signalled, Spontaneous};
        let all = Cause::ALL.into_iter().map(|(cause, ..)| cause);
        all.filter(|cause| !matches!(cause, Operator | Replaced | Spontaneous | Signalled))
    }

    /// Why a task aborts that has lost dependencies: none but such as were not needed, or others.
    pub(crate) fn of_lost(only_skipped: bool) -> Self {
        if only_skipped { Cause::Skipped } else { Cause::Dependency }
    }

    fn entry(self) -> (Cause, u8, &'static str) {
        Cause::ALL[self as usize]
    }

    /// As `settled.cause` stores it.
    pub(crate) fn stored(self) -> i8 {
        self.entry().1 as i8
    }

    /// From `settled.cause`.
    pub(crate) fn from_stored(letter: u8) -> Option<Self> {
        Cause::ALL.into_iter().find(|(_, stored, _)| *stored == letter).map(|(cause, ..)| cause)
    }

    /// As callers see it.
    pub(crate) fn name(self) -> &'static str {
        self.entry().2
    }

    /// From the name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Cause::ALL.into_iter().find(|(.., known)| *known == name).map(|(cause, ..)| cause)
    }
}

/// How the task waited for must end for the waiting one to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Condition {
    Aborted,
    #[default]
    Completed,
    Settled,
}

/// What the end of one dependency means for the task that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It ended the wrong way: the waiting task aborts, or is skipped, unless it can do without.
    Lost { skipped: bool },
    /// It ended as it should; `failed` if that was an abort.
    Satisfied { failed: bool },
}

impl Condition {
    const ALL: [Condition; 3] = [Condition::Completed, Condition::Settled, Condition::Aborted];

    /// From the spelling of docs/reference.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Condition::ALL.into_iter().find(|condition| condition.name() == name)
    }

    /// The names of all.
    pub(crate) fn names() -> [&'static str; 3] {
        Condition::ALL.map(Condition::name)
    }

    /// As docs/reference spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Condition::Aborted => "aborted",
            Condition::Completed => "completed",
            Condition::Settled => "settled",
        }
    }

    /// As `dependency.condition` stores it.
    pub(crate) fn stored(self) -> i8 {
        self.name().as_bytes()[0] as i8
    }

    /// From `dependency.condition`.
    pub(crate) fn from_stored(code: i8) -> Self {
        match code as u8 {
            b'a' => Condition::Aborted,
            b's' => Condition::Settled,
            _ => Condition::Completed,
        }
    }

    /// What it means for the waiting task that the other one ended like this.
    pub(crate) fn signal(self, outcome: Outcome) -> Signal {
        match (self, outcome) {
            (Condition::Completed, Outcome::Aborted) => Signal::Lost { skipped: false },
            (Condition::Completed, Outcome::Skipped) | (Condition::Aborted, Outcome::Completed) => {
                Signal::Lost { skipped: true }
            }
            (_, outcome) => Signal::Satisfied { failed: outcome.is_abort() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_met_as_the_contract_says() {
        use Condition::*;
        assert_eq!(Completed.signal(Outcome::Completed), Signal::Satisfied { failed: false });
        assert_eq!(Completed.signal(Outcome::Aborted), Signal::Lost { skipped: false });
        assert_eq!(Completed.signal(Outcome::Skipped), Signal::Lost { skipped: true });
        assert_eq!(Settled.signal(Outcome::Completed), Signal::Satisfied { failed: false });
        for abort in [Outcome::Aborted, Outcome::Skipped] {
            assert_eq!(Settled.signal(abort), Signal::Satisfied { failed: true });
            assert_eq!(Aborted.signal(abort), Signal::Satisfied { failed: true });
        }
        assert_eq!(Aborted.signal(Outcome::Completed), Signal::Lost { skipped: true });
    }

    #[test]
    fn causes_stand_at_their_places() {
        for (cause, letter, name) in Cause::ALL {
            assert_eq!((cause.stored(), cause.name()), (letter as i8, name));
            assert_eq!((Cause::from_stored(letter), Cause::from_name(name)), (Some(cause), Some(cause)));
        }
        assert_eq!(Cause::from_stored(b'?'), None);
    }

    #[test]
    fn no_abort_has_the_cause_of_a_completion() {
        let of_aborts: Vec<Cause> = Cause::of_aborts().collect();
        for cause in [Cause::Operator, Cause::Replaced, Cause::Signalled, Cause::Spontaneous] {
            assert!(!of_aborts.contains(&cause), "{}", cause.name());
        }
        assert_eq!(of_aborts.len(), 8);
    }

    #[test]
    fn stored_forms_come_back() {
        for condition in [Condition::Aborted, Condition::Completed, Condition::Settled] {
            assert_eq!(Condition::from_stored(condition.stored()), condition);
            assert_eq!(Condition::parse(condition.name()), Some(condition));
        }
        for outcome in [Outcome::Aborted, Outcome::Completed] {
            assert_eq!(Outcome::from_stored(outcome.stored()), outcome);
        }
    }
}
