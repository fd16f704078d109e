//! Where rows were last seen, by number.
//!
//! A worker returns what it was granted, over the same connection. The rows that its return needs were read or
//! written by the grant, and mostly lie where they lay then: looking there first spares the descent into an index.
//!
//! **It is a guess, and is checked**: what lies at the place has to be visible to the look, and has to have the number.
//! There is one such row at most, so it is the one that the index would have led to. A row that has moved (it was changed,
//! or its table rewritten) is found by its index, and so is one of a grant that was rolled back. A place beyond the end of
//! the table is not read; while the table is open it cannot be shortened.

use std::cell::Cell;
use std::thread::LocalKey;

use pgrx::pg_sys::ItemPointerData;

use super::columns::Column;
use super::each::Number;
use super::scan::{Key, Row, Scan, block};
use crate::pg::session;

/// How many places are remembered: a number has one slot of these, and shares it.
const SLOTS: usize = 256;

/// So many rows at most are looked for one by one; more are walked to.
const ROWS_ONE_BY_ONE: usize = 8;

/// For a thread-local variable beside the table's columns.
pub(crate) struct Places {
    /// Number, block, and place in the block, which is 0 where nothing is remembered.
    slots: [Cell<(i64, u32, u16)>; SLOTS],
}

impl Places {
    /// No place is known yet.
    pub(crate) const fn new() -> Self {
        Places { slots: [const { Cell::new((0, 0, 0)) }; SLOTS] }
    }

    fn slot(&self, number: i64) -> &Cell<(i64, u32, u16)> {
        &self.slots[number as usize % SLOTS]
    }

    /// Remembers where the row with a number lies.
    pub(crate) fn remember(&self, number: i64, place: ItemPointerData) {
        self.slot(number).set((number, block(place), place.ip_posid));
    }

    fn last_of(&self, number: i64) -> Option<ItemPointerData> {
        let (of, block, ip_posid) = self.slot(number).get();
        let ip_blkid = pgrx::pg_sys::BlockIdData { bi_hi: (block >> 16) as u16, bi_lo: block as u16 };
        (of == number && ip_posid != 0).then_some(ItemPointerData { ip_blkid, ip_posid })
    }
}

impl Scan<'_> {
    /// As [`Scan::of_each`], for rows that this backend may have seen before.
    pub(crate) fn of_each_seen<N: Number, T>(
        &mut self,
        places: &'static LocalKey<Places>,
        column: Column<N>,
        numbers: impl ExactSizeIterator<Item = N>,
        mut read: impl FnMut(usize, &Row) -> T,
    ) -> Vec<Option<T>> {
        if numbers.len() > ROWS_ONE_BY_ONE {
            return self.of_each(column, numbers, read);
        }
        let mut wanted: Vec<(N, usize)> = numbers.enumerate().map(|(at, n)| (n, at)).collect();
        wanted.sort_unstable();
        let mut found: Vec<Option<T>> = wanted.iter().map(|_| None).collect();
        for (number, at) in wanted {
            found[at] = self.seen(places, column, number, |row| read(at, row));
        }
        found
    }

    fn seen<N: Number, T>(
        &mut self,
        places: &'static LocalKey<Places>,
        column: Column<N>,
        number: N,
        read: impl FnOnce(&Row) -> T,
    ) -> Option<T> {
        if let Some(row) = self.last_seen(places, number).filter(|row| row.get(column) == number) {
            return Some(read(&row));
        }
        self.first(&[Key::eq(1, number)], |row| {
            places.with(|places| places.remember(number.bits(), row.place()));
            read(row)
        })
    }

    /// The row that lies where one with this number was last seen: it may be another one. (Where reading is kept account
    /// of, none: rows are looked up.)
    pub(crate) fn last_seen<N: Number>(
        &mut self,
        places: &'static LocalKey<Places>,
        number: N,
    ) -> Option<Row<'_>> {
        let place = places.with(|places| places.last_of(number.bits()))?;
        if session::is_serializable() {
            return None;
        }
        self.at(place)
    }
}
