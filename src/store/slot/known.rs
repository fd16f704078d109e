//! What a backend knows of slots, so that its claims do not walk over dead versions of them.
//!
//! A slot changes twice in each performance. Under a snapshot that a session holds for long all its versions stay, and
//! so do their index entries. Three things keep claims from passing them each time:
//!
//! **Marks.** A slot that is freed takes a new position, behind all others, and the first in that order is taken first.
//! So the free ones are at the end of `slot_free_idx`, and claims begin at a low-water mark, see [`Behind`]. (A slot that
//! is taken keeps its position. If the grant is rolled back it is free there again; no mark has passed it, since no
//! other transaction has seen it taken.)
//!
//! **Full limits** of groups are found by walking what is held. Where that is costly the answer is kept for a while
//! ([`cost`]), and those that were full are asked one by one whether they still are. Those that get full meanwhile
//! turn out to be when their slots are to be locked, and are added where they are known to have all their slots.
//!
//! **Limits that have all their slots.** Whether rows are missing is counted, and where that is costly, the answer that
//! none are is kept for a while.
//!
//! The last two are wrong about a group that has lost its last task meanwhile, with its slots, and has new tasks: this
//! backend takes its limit for full until the while is over.

use super::{Ask, Limit};
use crate::memory::{Belief, Latest, Memory, Remembered, cost};
use crate::number::Position;
use crate::store::behind::Behind;
use crate::store::decided::Look;

/// How many limits are noted as complete at once, at most; and up to how many full ones others are added.
const MOST_LIMITS: usize = 1_024;

/// By limit, and how many it allows: of free slots above that nothing is known.
static FREE: Memory<Behind<(Limit, i32)>> = Memory::of(Belief::FreeSlots);
/// Of the actions that were asked about: the limits, with how many are held.
static FULL: Memory<Latest<Vec<String>, Vec<(Limit, i32)>>> = Memory::of(Belief::FullLimits);
/// Limits, and how many they allow.
static COMPLETE: Memory<Remembered<(Limit, i32), ()>> = Memory::of(Belief::CompleteLimits);

/// Before this position no free slot is known of a limit that allows so many.
pub(super) fn start(limit: &Limit, most: i32) -> Position {
    FREE.with(|free| free.start(&(limit.clone(), most)))
}

/// Moves the marks of these limits up, see [`Behind::advance`].
pub(super) fn advance(asks: &[&Ask], firsts: &[Option<Position>], look: &Look, had_id: bool) {
    let firsts = asks.iter().zip(firsts).map(|(ask, first)| ((ask.limit.clone(), ask.most), *first));
    FREE.with(|free| free.advance(firsts, look, had_id));
}

/// The limits of groups that were full, with how many were held, if this was answered at some cost not long ago.
pub(super) fn full(actions: &[String]) -> Option<Vec<(Limit, i32)>> {
    FULL.with(|full| full.get(actions).cloned())
}

/// Remembers which limits are full, if it was costly to find that out: `held` slots were counted, of so many limits.
pub(super) fn remember_full(
    actions: Vec<String>,
    limits: Vec<(Limit, i32)>,
    pages: u64,
    held: usize,
    of: usize,
) {
    // What each limit allows is looked up besides.
    let few = held.saturating_add(of.saturating_mul(8));
    FULL.with(|full| full.note_at_cost(actions, limits, (pages, few)));
}

/// A limit of a group has turned out to be full. If the limit may have fewer slots than it allows, that is not sure:
/// another call may just have been making them.
pub(crate) fn is_full(limit: &Limit, most: i32) {
    FULL.with(|full| {
        let Some(limits) = full.value_mut() else { return };
        let entry = (limit.clone(), most);
        if limits.len() < MOST_LIMITS
            && COMPLETE.with(|complete| complete.get(&entry).is_some())
            && !limits.contains(&entry)
        {
            limits.push(entry);
        }
    });
}

/// Whether it was found out not long ago, at some cost, that the limit has all its slots.
pub(super) fn is_complete(ask: &Ask) -> bool {
    COMPLETE.with(|complete| !complete.is_empty() && complete.get(&(ask.limit.clone(), ask.most)).is_some())
}

/// Remembers that limits have all their slots, if it was costly to find that out: so many slots were counted, at most.
pub(super) fn remember_complete<'a>(asks: impl Iterator<Item = &'a Ask>, pages: u64, counted: usize) {
    let Some(time) = cost::lasts(pages, counted) else { return };
    COMPLETE.with(|complete| {
        for ask in asks.take(MOST_LIMITS) {
            complete.note_for((ask.limit.clone(), ask.most), (), time);
        }
    });
}
