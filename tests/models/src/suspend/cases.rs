//! What is tried.

use super::{Clause, Set, Suspend, X, Y, Z};
use crate::check::long;

impl Suspend {
    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<(&'static str, Suspend)> {
        let of = |inserted: Option<(Set, u8)>, waits: &[Set], ends: &[Set]| Suspend {
            without,
            inserted,
            waits: waits.to_vec(),
            ends: ends.to_vec(),
            loses: 0,
            deletes: 0,
            time_outs: 0,
            rollbacks: 0,
        };
        let mut all = vec![
            ("two, then another", of(None, &[X | Y, Z], &[X, Y, Z])),
            ("two, rolled back", Suspend { rollbacks: 1, ..of(None, &[X | Y], &[X, Y]) }),
            ("two of a time-out", Suspend { time_outs: 1, ..of(None, &[X | Y], &[X, Y]) }),
            ("one of a time-out, then another", Suspend { time_outs: 1, ..of(None, &[X, Y], &[X, Y]) }),
            ("one of a time-out, then the same", Suspend { time_outs: 1, ..of(None, &[X, X], &[X]) }),
            (
                "two of a time-out, then another",
                Suspend { time_outs: 1, ..of(None, &[X | Y, Z], &[X, Y, Z]) },
            ),
            (
                "one of a time-out, rolled back, then another",
                Suspend { time_outs: 1, rollbacks: 1, ..of(None, &[X, Y], &[X, Y]) },
            ),
            ("one of two, then another", of(Some((X | Y, 1)), &[Z], &[X, Y, Z])),
            ("one of two, then the other", of(Some((X | Y, 1)), &[Y], &[X, Y])),
            (
                "one of two, rolled back, then the other",
                Suspend { rollbacks: 1, ..of(Some((X | Y, 1)), &[Y], &[X, Y]) },
            ),
            (
                "two of three, of which two end at once",
                Suspend { rollbacks: 1, ..of(Some((X | Y | Z, 2)), &[], &[X | Z, Y]) },
            ),
            (
                "one of two is lost, or their time is over",
                Suspend { loses: X, time_outs: 1, ..of(None, &[X | Y], &[X, Y]) },
            ),
            (
                "one is lost, or its time is over, then another",
                Suspend { loses: X, time_outs: 1, rollbacks: 1, ..of(None, &[X, Y], &[X, Y]) },
            ),
            (
                "one of two suffices, and the other is lost",
                Suspend { loses: X, rollbacks: 1, ..of(Some((X | Y, 1)), &[Z], &[X, Y, Z]) },
            ),
            (
                "two of a time-out, rolled back, then another",
                Suspend { time_outs: 1, rollbacks: 1, ..of(None, &[X | Y, Z], &[X, Y, Z]) },
            ),
            (
                "one of two, rolled back, then another with a time-out",
                Suspend { time_outs: 1, rollbacks: 1, ..of(Some((X | Y, 1)), &[Z], &[X, Y, Z]) },
            ),
            ("three times", Suspend { time_outs: 2, ..of(None, &[X | Y, Y | Z, X | Z], &[X, Y, Z]) }),
            ("one of two is deleted", Suspend { deletes: Y, rollbacks: 1, ..of(None, &[X | Y], &[X, Y]) }),
            (
                "one of two is deleted, or their time is over",
                Suspend { deletes: Y, time_outs: 1, rollbacks: 1, ..of(None, &[X | Y], &[X, Y]) },
            ),
            (
                "one of two suffices, and the other is deleted",
                Suspend { deletes: Y, rollbacks: 1, ..of(Some((X | Y, 1)), &[], &[X, Y]) },
            ),
            (
                "one of two suffices, then another that is deleted",
                Suspend { deletes: Z, ..of(Some((X | Y, 1)), &[Z], &[X, Y, Z]) },
            ),
            (
                "one of two suffices, and both are lost",
                Suspend { loses: X | Y, ..of(Some((X | Y, 1)), &[Z], &[X, Y, Z]) },
            ),
        ];
        if long() {
            all.extend([
                (
                    "three times, rolled back",
                    Suspend { time_outs: 2, rollbacks: 2, ..of(None, &[X | Y, Y | Z, X | Z], &[X, Y, Z]) },
                ),
                (
                    "two of three, then two with a time-out, rolled back",
                    Suspend {
                        time_outs: 1,
                        rollbacks: 2,
                        ..of(Some((X | Y | Z, 2)), &[X | Y, Z], &[X, Y, Z])
                    },
                ),
                (
                    "two of three are lost or not, then another with a time-out",
                    Suspend { loses: X, time_outs: 2, rollbacks: 2, ..of(None, &[X | Y, Y | Z], &[X, Y, Z]) },
                ),
            ]);
        }
        all
    }
}
