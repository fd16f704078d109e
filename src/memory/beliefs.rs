//! What a session believes: every memory, how long it is good for, and what ends it before.
//!
//! This list is the code: the memories take their rules from it. Whose the memory is, and why its rule is right, is said where it
//! stands ([`Memory`](super::Memory)); what it holds now shows `taskq._session()`.
//!
//! **A rollback leaves nothing wrong that matters.** What it could make untrue says nothing of what this transaction has changed
//! (`of_committed`), or it is of a version that the rollback changes as well, or it is a hint that costs a look or some time if it
//! is wrong. The marks of a transaction's own are good until its next end only ([`ends`](crate::ends::at_end::ends)).

use std::time::Duration;

use super::rule::{Event, Lasts, Rule};

/// Declares the memories and their rules.
macro_rules! beliefs {
    ($($(#[$about:meta])* $name:ident: $rule:expr;)*) => {
        /// A memory of the session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Belief {
            $($(#[$about])* $name,)*
        }

        /// The rule of each.
        pub(super) static RULES: [Rule; [$(Belief::$name),*].len()] = [$($rule),*];
    };
}

beliefs! {
    /// Numbers of actions and what is set for them, by name (`store::known_actions`). Ends with each change of the tables. The second
    /// is for changes that are made without the functions of the queue.
    Actions: Rule {
        lasts: Lasts::For(Duration::from_secs(1)),
        by_version: true,
        ends_with: &[Event::LookAgain],
        most: 1_024,
        ..Rule::new("actions by name")
    };

    /// The same by number.
    ActionNumbers: Rule {
        lasts: Lasts::For(Duration::from_secs(1)),
        by_version: true,
        ends_with: &[Event::LookAgain],
        most: 4_096,
        ..Rule::new("actions by number")
    };

    /// The parts of roles (`rights`). Ends with each change of functions and their rights, of roles or of memberships.
    Parts: Rule { by_version: true, most: 4_096, ..Rule::new("parts of roles") };

    /// That nothing of others is on what the background worker touches (`background::trust`). Ends with each change of schemas,
    /// functions and relations in the catalog; the minute is for other changes.
    Trusted: Rule {
        lasts: Lasts::For(Duration::from_secs(60)),
        by_version: true,
        ..Rule::new("trusted owner")
    };

    /// What `taskq.lease` means (`guc`). The text is the key.
    Lease: Rule::new("taskq.lease");

    /// Before which position of an action and priority there is nothing to be had (`claim::marks`). A proof, not a guess: it goes by
    /// what is decided, and ends itself where positions are others.
    Marks: Rule { lasts: Lasts::Exact, ..Rule::new("marks of claims") };

    /// Before which position an action's lanes have nothing, some excepted (`store::known_lanes`). Goes by the bounds of the marks.
    Lanes: Rule { ends_with: &[Event::PositionsInDoubt], most: 256, ..Rule::new("marks of lanes") };

    /// Before which position a limit has no free slot (`store::slot`). Exact as the marks of claims.
    FreeSlots: Rule { lasts: Lasts::Exact, ..Rule::new("marks of slots") };

    /// Which limits of groups are full (`store::slot`). Wrong of a group that has lost its last task meanwhile, for as long.
    FullLimits: Rule { lasts: Lasts::ByCost, ..Rule::new("full limits") };

    /// Which limits have all their slots (`store::slot`). As full limits.
    CompleteLimits: Rule { lasts: Lasts::ByCost, most: 1_024, ..Rule::new("limits with all slots") };

    /// Where looks for what is due begin (`store::low_ends`). What is committed late, below that, is found when its time is over.
    LowEnds: Rule {
        lasts: Lasts::ByCost,
        ends_with: &[Event::ClockBack],
        of_committed: true,
        most: 2_048,
        ..Rule::new("low ends of indexes")
    };

    /// That nothing was due for a call's actions (`wake::lately`). Ends also with what this session makes that is due so soon.
    NothingDue: Rule { lasts: Lasts::For(Duration::from_millis(10)), ..Rule::new("nothing due") };

    /// At which time of the queue's clock nothing had expired (`store::expiry`), which says for how long claims go by it: where a
    /// test moves the clock, no time may have passed by any other.
    NothingExpired: Rule {
        lasts: Lasts::Exact,
        ends_with: &[Event::ClockBack],
        ..Rule::new("nothing expired")
    };

    /// Schedules whose runs would have waited for another transaction (`schedules::fire`). They are tried again then.
    PutOff: Rule {
        lasts: Lasts::For(Duration::from_secs(1)),
        most: 1_024,
        ..Rule::new("schedules put off")
    };

    /// Tasks whose rows contradict each other (`store::contradiction`), which are left alone. What is forgotten is tried again, and
    /// may be written to the log again.
    Left: Rule { lasts: Lasts::For(Duration::from_secs(60)), ..Rule::new("tasks left alone") };

    /// Whose turn it is among the lanes of an action (`claim::turns`). After a rollback the turn is another's, and no share is.
    Turns: Rule { most: 4_096, ..Rule::new("turns of lanes") };

    /// With which pace a call has come back empty (`verbs::pace`), for the call that goes on for it.
    Pace: Rule { lasts: Lasts::For(Duration::from_secs(1)), ..Rule::new("pace of waiting") };

    /// That there is nothing to seal for a while (`store::seal`).
    Sealed: Rule { lasts: Lasts::AsGiven, ..Rule::new("nothing to seal") };

    /// That the seconds to be sealed have more rows than a step counts (`store::seal`). A guess at what the next one is like.
    FullSeconds: Rule::new("full seconds to seal");
}
