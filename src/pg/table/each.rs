//! The rows of many numbers, by few walks along an index.
//!
//! What one call grants or returns mostly lies close together: it was inserted together. A descent into the index for
//! each number costs more than the next entry of a walk does.

use pgrx::IntoDatum;

use super::columns::{Column, Read};
use super::scan::{Key, Row, Scan};
use crate::pg::session::check_for_interrupts;

/// How far one number may be from the next for a walk to pass what is in between.
const NEAR: u64 = 3;

/// What rows are numbered by.
pub(crate) trait Number: Copy + Ord + IntoDatum + Read {
    /// How far it is from here to a later one.
    fn distance(self, later: Self) -> u64;

    fn bits(self) -> i64;
}

impl Scan<'_> {
    /// Hands the row of each of the numbers to `read`, and returns what that makes of it in the order of the numbers given;
    /// `None` where there is no row. The rows are read in the order of their numbers. `column` is the only one of the index,
    /// which is unique.
    pub(crate) fn of_each<N: Number, T>(
        &mut self,
        column: Column<N>,
        numbers: impl IntoIterator<Item = N>,
        mut read: impl FnMut(usize, &Row) -> T,
    ) -> Vec<Option<T>> {
        let mut wanted: Vec<(N, usize)> = numbers.into_iter().enumerate().map(|(at, n)| (n, at)).collect();
        wanted.sort_unstable();
        let mut found: Vec<Option<T>> = wanted.iter().map(|_| None).collect();
        for near in wanted.chunk_by(|(one, _), (next, _)| one.distance(*next) <= NEAR) {
            check_for_interrupts();
            let (Some((first, _)), Some((last, _))) = (near.first(), near.last()) else { continue };
            self.start(&[Key::at_least(1, *first), Key::at_most(1, *last)]);
            let mut near = near.iter().peekable();
            while let Some(row) = self.next() {
                check_for_interrupts();
                let number = row.get(column);
                while near.next_if(|(wanted, _)| *wanted < number).is_some() {}
                while let Some((_, at)) = near.next_if(|(wanted, _)| *wanted == number) {
                    found[*at] = Some(read(*at, &row));
                }
                if near.peek().is_none() {
                    break;
                }
            }
        }
        found
    }
}
