//! Tries that are overdue, as statements ask for them.

/// Whether the performance of a row of `run`, named `r`, is held, and its deadline has passed.
macro_rules! overdue {
    ($now:literal) => {
        concat!("NOT r.grantable AND r.aside IS NULL AND r.deadline <= ", $now)
    };
}

pub(super) use overdue;
