//! Dependencies as clients write them.

/// When a dependent may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Completed,
    Settled,
    Aborted,
}

/// `run` must run after `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub after: String,
    pub run: String,
    pub condition: Condition,
}

impl Condition {
    /// The condition's spelling in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Condition::Completed => "completed",
            Condition::Settled => "settled",
            Condition::Aborted => "aborted",
        }
    }
}
