//! What is tried.

use super::Brings::{Due, Ready};
use super::{Brings, Clause, Tender, Time};
use crate::check::long;

impl Tender {
    /// What is tried.
    pub fn all(without: Option<Clause>) -> Vec<(&'static str, Tender)> {
        let of = |end: Time, there: &[Brings], added: &[Brings]| Tender {
            without,
            calls: vec![(0, end), (1, end)],
            there: there.to_vec(),
            added: added.to_vec(),
            slots: 2,
            is_there: false,
            kills: 0,
            passers: 0,
            cancels: 0,
            slow: 0,
            late: 0,
            starts: 2,
        };
        let mut all = vec![
            ("two wake for the same", Tender { starts: 1, slow: 1, ..of(3, &[Due(1, 2)], &[]) }),
            ("a tender is there", Tender { is_there: true, ..of(3, &[], &[Due(0, 0)]) }),
            ("killed", Tender { kills: 1, late: 1, ..of(4, &[Due(1, 0)], &[]) }),
            (
                "killed beside a sleeper",
                Tender { kills: 1, late: 1, is_there: true, ..of(4, &[], &[Due(1, 0)]) },
            ),
            ("one is cancelled", Tender { cancels: 1, ..of(4, &[], &[Due(2, 0)]) }),
            ("a call passes by", Tender { passers: 1, ..of(4, &[Due(1, 2)], &[Due(2, 0)]) }),
            (
                "no process",
                Tender { slots: 0, calls: vec![(0, 5), (1, 2)], late: 1, ..of(5, &[Due(1, 0)], &[]) },
            ),
            (
                "the only process leaves",
                Tender {
                    slots: 1,
                    is_there: true,
                    calls: vec![(0, 4), (1, 2)],
                    late: 4,
                    ..of(4, &[], &[Due(0, 0)])
                },
            ),
            ("two in a second", Tender { late: 1, ..of(3, &[Due(0, 2)], &[Due(0, 2)]) }),
            ("of the other's action", Tender { slow: 1, ..of(3, &[], &[Due(1, 0)]) }),
            ("one is granted something else", of(4, &[], &[Due(2, 0), Ready(1)])),
        ];
        if long() {
            let three = |end: Time| vec![(0, end), (1, end), (0, end)];
            all.extend([
                ("killed twice", Tender { kills: 2, late: 2, ..of(5, &[], &[Due(1, 0)]) }),
                ("three calls", Tender { calls: three(3), starts: 3, ..of(3, &[], &[Due(1, 0)]) }),
                ("slow machines", Tender { slow: 2, is_there: true, ..of(3, &[], &[Due(0, 0)]) }),
            ]);
        }
        all
    }
}
