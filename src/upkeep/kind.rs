//! The kinds of upkeep.

/// A kind of upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Tries whose deadlines have passed.
    Leases,
    /// Timers, suspensions whose time is over, and tasks that expire.
    ByTime,
    /// Runs of schedules.
    Schedules,
    /// Tasks whose time has come.
    DueTasks,
    /// Countdown rows that are not counted yet.
    Signals,
    /// Entries that may not run, and are in the way of calls that wait.
    Parking,
    /// Settled tasks whose retention is over.
    Retention,
    /// Sums of what has settled.
    Tallies,
}

impl Kind {
    /// In the order in which they are done: what has ended or expired is not to be claimed, and the try that has ended may be of the
    /// run that keeps a schedule from its next.
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Leases,
        Kind::ByTime,
        Kind::Schedules,
        Kind::DueTasks,
        Kind::Signals,
        Kind::Parking,
        Kind::Retention,
        Kind::Tallies,
    ];

    /// What the log calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Leases => "leases",
            Kind::ByTime => "timers",
            Kind::Schedules => "schedules",
            Kind::DueTasks => "due tasks",
            Kind::Signals => "signals",
            Kind::Parking => "entries to be parked",
            Kind::Retention => "retention",
            Kind::Tallies => "tallies",
        }
    }
}
