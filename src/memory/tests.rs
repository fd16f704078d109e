//! How long things are remembered, and what ends that.

use std::time::{Duration, Instant};

use super::rule::{Event, Lasts, Rule};
use super::*;
use crate::pg::clock::{Time, Wall};

static PLAIN: Rule = Rule::new("plain");
static SOON_OVER: Rule = Rule { lasts: Lasts::For(Duration::from_millis(1)), ..Rule::new("soon over") };
static COSTLY: Rule = Rule { lasts: Lasts::ByCost, ..Rule::new("costly") };
static FEW: Rule = Rule { lasts: Lasts::AsGiven, most: 2, ..Rule::new("few") };
static VERSIONED: Rule = Rule { by_version: true, ..Rule::new("by version") };

const LONG: Duration = Duration::from_secs(60);

fn now() -> Now {
    Now { instant: Instant::now(), wall: Wall(0) }
}

fn wait() {
    std::thread::sleep(Duration::from_millis(2));
}

#[test]
fn by_time_an_entry_is_over_by_itself() {
    let mut memory: Remembered<&str, i32> = Remembered::new(&SOON_OVER);
    assert!(!memory.note("a", 1));
    memory.note_for("b", 2, LONG);
    wait();
    assert_eq!((memory.get("a"), memory.get("b")), (None, Some(&2)));
    assert!(memory.note("a", 3), "it was known before");
    let mut latest: Latest<&str, i32> = Latest::new(&SOON_OVER);
    latest.note("a", 1);
    wait();
    assert_eq!(latest.get("a"), None);
    assert_eq!(latest.take("a"), None);
}

#[test]
fn what_goes_on_lasts_no_longer() {
    let mut memory: Remembered<&str, i32> = Remembered::new(&SOON_OVER);
    memory.go_on(&"a", 1);
    assert!(memory.is_empty(), "nothing was known of it");
    memory.note("a", 1);
    wait();
    memory.go_on(&"a", 2);
    assert_eq!(memory.get("a"), None);
}

#[test]
fn by_cost_what_was_cheap_is_not_kept() {
    let mut latest: Latest<&str, i32> = Latest::new(&COSTLY);
    latest.note_at_cost("a", 1, (10_000, 0));
    assert_eq!(latest.get("a"), Some(&1));
    latest.note_at_cost("a", 2, (10, 0));
    assert_eq!(latest.get("a"), None, "nor is what was found before");
    latest.note("a", 3);
    assert_eq!(latest.get("a"), None, "a time has to be given");
}

#[test]
fn by_version_everything_is_over_at_once() {
    let mut memory: Remembered<&str, i32> = Remembered::new(&VERSIONED);
    memory.as_of(7);
    memory.note("a", 1);
    memory.as_of(7);
    assert_eq!(memory.get("a"), Some(&1));
    memory.as_of(8);
    assert_eq!((memory.get("a"), memory.version()), (None, 8));
    assert_eq!(memory.shown(now()).version, Some(8));
}

#[test]
fn only_the_latest_key_is_known() {
    let mut latest: Latest<String, i32> = Latest::new(&PLAIN);
    latest.note("a".to_owned(), 1);
    assert_eq!((latest.get("b"), latest.get("a")), (None, Some(&1)));
    assert_eq!(latest.take("b"), None);
    assert_eq!(latest.get("a"), None, "it was taken for another");
}

#[test]
fn a_full_memory_keeps_what_is_good_if_there_is_room() {
    let mut memory: Remembered<i32, ()> = Remembered::new(&FEW);
    memory.note_for(1, (), Duration::ZERO);
    memory.note_for(2, (), LONG);
    memory.note_for(3, (), LONG);
    assert_eq!([1, 2, 3].map(|n: i32| memory.get(&n).is_some()), [false, true, true]);
    memory.note_for(3, (), LONG);
    memory.note_for(4, (), LONG);
    assert_eq!([2, 3, 4].map(|n: i32| memory.get(&n).is_some()), [false, false, true]);
}

#[test]
fn a_clock_that_goes_back_ends_what_goes_by_it() {
    let ends: Memory<Remembered<i32, ()>> = Memory::of(Belief::LowEnds);
    let turns: Memory<Remembered<i32, ()>> = Memory::of(Belief::Turns);
    let number = |memory: &Memory<Remembered<i32, ()>>| memory.with(|memory| memory.shown(now()).entries);
    clock_shows(Time(100));
    turns.with(|turns| turns.note(1, ()));
    ends.with(|ends| ends.forget());
    assert_eq!(number(&turns), 1);
    clock_shows(Time(200));
    clock_shows(Time(200));
    assert_eq!(number(&turns), 1);
    let passed: Memory<Latest<(), ()>> = Memory::of(Belief::NothingExpired);
    passed.with(|passed| passed.note((), ()));
    clock_shows(Time(199));
    assert_eq!((number(&turns), passed.with(|passed| passed.shown(now()).entries)), (1, 0));
    clock_shows(Time(198));
    clock_shows(Time(250));
    happened(Event::PositionsInDoubt);
    assert_eq!(number(&turns), 1);
    forget_all();
    assert_eq!(number(&turns), 0);
}

#[test]
fn of_what_is_over_nothing_is_shown() {
    let mut memory: Remembered<i32, ()> = Remembered::new(&FEW);
    memory.note_for(1, (), Duration::ZERO);
    assert_eq!(memory.shown(now()), Shown::default());
}
