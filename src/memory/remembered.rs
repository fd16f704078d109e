//! The two kinds of memories that need no rule of their own: one by keys, and one of the latest only. Others, such as the marks of
//! claims, stand where they are used, and are [`Remembers`] as well.
//!
//! How long an entry is good for is measured by a clock that never goes back and that no test sets.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::cost;
use super::rule::{Lasts, Rule};
use crate::pg::clock::Wall;

/// This moment, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// By the clock that never goes back.
    pub(super) instant: Instant,
    /// By the server's clock.
    pub(super) wall: Wall,
}

/// What `taskq._session()` shows of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// How many entries are good now.
    pub(crate) entries: usize,
    /// Until when the last of them is.
    pub(crate) until: Option<Wall>,
    /// For which version; of marks, up to which position.
    pub(crate) version: Option<i64>,
}

/// What a session may remember, as all memories are known to it.
pub(crate) trait Remembers: std::any::Any {
    /// With nothing in it.
    fn new(rule: &'static Rule) -> Self
    where
        Self: Sized;

    /// Forgets everything.
    fn forget(&mut self);

    /// What it holds.
    fn shown(&self, now: Now) -> Shown;
}

/// What is remembered of one key.
#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// `None`: until something ends it.
    until: Option<Instant>,
}

impl<V> Entry<V> {
    fn is_good(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// The same, where it is not known what time it is.
    fn is_still_good(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Rule {
    /// How long an entry is good for that comes without a time of its own; `None`: until something ends it.
    fn time(&self) -> Option<Duration> {
        match self.lasts {
            Lasts::For(time) => Some(time),
            Lasts::Always | Lasts::Exact => None,
            // Nothing, rather than for ever.
            Lasts::ByCost | Lasts::AsGiven => Some(Duration::ZERO),
        }
    }

    fn shown<'a, V: 'a>(&self, version: u64, now: Now, entries: impl Iterator<Item = &'a Entry<V>>) -> Shown {
        let (mut good, mut last) = (0, None);
        for entry in entries.filter(|entry| entry.is_good(now.instant)) {
            good += 1;
            last = last.max(entry.until);
        }
        let until = last.map(|last| now.wall + last.saturating_duration_since(now.instant));
        let version = self.by_version.then(|| i64::try_from(version).unwrap_or(i64::MAX));
        Shown { entries: good, until, version }
    }
}

/// What is remembered by keys.
#[derive(Debug)]
pub(crate) struct Remembered<K, V> {
    rule: &'static Rule,
    version: u64,
    entries: HashMap<K, Entry<V>>,
}

impl<K: Eq + Hash, V> Remembered<K, V> {
    /// What is remembered of a key and good.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let entry = self.entries.get(key)?;
        entry.is_still_good().then_some(&entry.value)
    }

    /// The same, at this moment: where several are asked for.
    pub(crate) fn get_at<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: Instant) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).filter(|entry| entry.is_good(now)).map(|entry| &entry.value)
    }

    /// The same, to be changed; it is good for as long as before.
    pub(crate) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.entries.get_mut(key).filter(|entry| entry.is_still_good()).map(|entry| &mut entry.value)
    }

    /// Remembers a value for as long as the rule says. Whether there was one of the key, good or not.
    pub(crate) fn note(&mut self, key: K, value: V) -> bool {
        self.keep(key, value, self.rule.time())
    }

    /// Remembers a value for so long.
    pub(crate) fn note_for(&mut self, key: K, value: V, time: Duration) {
        self.keep(key, value, Some(time));
    }

    fn keep(&mut self, key: K, value: V, time: Option<Duration>) -> bool {
        if self.entries.len() >= self.rule.most && !self.entries.contains_key(&key) {
            self.tidy();
            if self.entries.len() >= self.rule.most {
                self.entries.clear();
            }
        }
        let until = time.map(|time| Instant::now() + time);
        self.entries.insert(key, Entry { value, until }).is_some()
    }

    /// Another value of a key of which one is remembered; it is good for as long as that one would have been.
    pub(crate) fn go_on(&mut self, key: &K, value: V) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.value = value;
        }
    }

    /// Forgets a key.
    pub(crate) fn drop_key<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key);
    }

    /// Forgets what is not good any more.
    pub(crate) fn tidy(&mut self) {
        let now = Instant::now();
        self.entries.retain(|_, entry| entry.is_good(now));
    }

    /// How many keys there are, good or not.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The keys, good or not.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    /// Forgets everything that is not of this version.
    pub(crate) fn as_of(&mut self, version: u64) {
        if self.version != version {
            self.entries.clear();
            self.version = version;
        }
    }

    /// Of which version everything is.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

impl<K: Eq + Hash + 'static, V: 'static> Remembers for Remembered<K, V> {
    fn new(rule: &'static Rule) -> Self {
        Remembered { rule, version: 0, entries: HashMap::new() }
    }

    fn forget(&mut self) {
        self.entries.clear();
    }

    fn shown(&self, now: Now) -> Shown {
        self.rule.shown(self.version, now, self.entries.values())
    }
}

/// What is remembered of the key that was noted last, and of no other.
#[derive(Debug)]
pub(crate) struct Latest<K, V> {
    rule: &'static Rule,
    version: u64,
    entry: Option<(K, Entry<V>)>,
}

impl<K, V> Latest<K, V> {
    /// What is remembered, if it is of this key and good.
    pub(crate) fn get<Q: Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (_, entry) = self.entry.as_ref().filter(|(of, _)| of.borrow() == key)?;
        entry.is_still_good().then_some(&entry.value)
    }

    /// The same; it is forgotten, and so is what there was of another key.
    pub(crate) fn take<Q: Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (of, entry) = self.entry.take()?;
        (of.borrow() == key && entry.is_still_good()).then_some(entry.value)
    }

    /// The value, of whatever key, good or not, to be changed; it is good for as long as before.
    pub(crate) fn value_mut(&mut self) -> Option<&mut V> {
        self.entry.as_mut().map(|(_, entry)| &mut entry.value)
    }

    /// Remembers a value for as long as the rule says.
    pub(crate) fn note(&mut self, key: K, value: V) {
        self.keep(key, value, self.rule.time());
    }

    /// Remembers a value for so long.
    pub(crate) fn note_for(&mut self, key: K, value: V, time: Duration) {
        self.keep(key, value, Some(time));
    }

    /// Remembers a value if it was costly to find out: so many pages were read, where `few` would have been cheap. If it was not,
    /// nothing is remembered.
    pub(crate) fn note_at_cost(&mut self, key: K, value: V, (pages, few): (u64, usize)) {
        match cost::lasts(pages, few) {
            Some(time) => self.note_for(key, value, time),
            None => self.entry = None,
        }
    }

    fn keep(&mut self, key: K, value: V, time: Option<Duration>) {
        let until = time.map(|time| Instant::now() + time);
        self.entry = Some((key, Entry { value, until }));
    }

    /// Forgets it.
    pub(crate) fn clear(&mut self) {
        self.entry = None;
    }

    /// Forgets it, if it is not of this version.
    pub(crate) fn as_of(&mut self, version: u64) {
        if self.version != version {
            self.entry = None;
            self.version = version;
        }
    }
}

impl<K: 'static, V: 'static> Remembers for Latest<K, V> {
    fn new(rule: &'static Rule) -> Self {
        Latest { rule, version: 0, entry: None }
    }

    fn forget(&mut self) {
        self.entry = None;
    }

    fn shown(&self, now: Now) -> Shown {
        self.rule.shown(self.version, now, self.entry.iter().map(|(_, entry)| entry))
    }
}
