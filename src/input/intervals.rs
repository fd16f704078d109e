//! Intervals that a call gives as texts.

use std::collections::HashMap;

use pgrx::datum::Interval;

use crate::pg::clock;

/// Intervals by their text: the input function runs once for each text of an array.
#[derive(Default)]
pub(super) struct Intervals(HashMap<String, Option<Interval>>);

impl Intervals {
    /// What Postgres reads in the text; `None`: it is no interval.
    pub(super) fn get(&mut self, text: &str) -> Option<Interval> {
        if let Some(interval) = self.0.get(text) {
            return *interval;
        }
        let interval = clock::parse_interval(text);
        self.0.insert(text.to_owned(), interval);
        interval
    }
}
