//! Locks on a thing that has a name but need not have a row, held until the transaction ends, or a subtransaction that has
//! taken them is rolled back, unless given up before.

use pgrx::pg_sys;

/// The fourth field of our lock tags, see [`super::latch::TAG_CLASS`]; another one, so that a holder is not taken
/// for a waiting call.
const TAG_CLASS: u16 = 0x7472;

/// Whether others may hold the lock as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Others may, in any mode but [`Mode::Only`].
    Beside,
    /// Others in this mode or [`Mode::Beside`].
    Within,
    /// Others may in this mode, and in [`Mode::Beside`].
    Shared,
    /// No other transaction may, except in [`Mode::Beside`].
    Alone,
    /// No other transaction may, in any mode.
    Only,
}

impl Mode {
    fn level(self) -> pg_sys::LOCKMODE {
        match self {
            Mode::Beside => pg_sys::AccessShareLock as pg_sys::LOCKMODE,
            Mode::Within => pg_sys::RowExclusiveLock as pg_sys::LOCKMODE,
            Mode::Shared => pg_sys::ShareLock as pg_sys::LOCKMODE,
            Mode::Alone => pg_sys::ExclusiveLock as pg_sys::LOCKMODE,
            Mode::Only => pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE,
        }
    }
}

/// What is locked: a number made of a name. Two names that get the same number share a lock: one of them is busy, or is
/// waited for, at times when it need not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// The key of a name of several parts (FNV-1a; each part ends with a byte that no text has).
    pub(crate) fn new(parts: &[&str]) -> Self {
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
        Key(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }

    /// The number, of 56 bits, for the channels of [`super::latch`].
    pub(crate) fn number(self) -> u64 {
        self.0 & ((1 << 56) - 1)
    }

    /// One of `n` keys that stand for all: where a transaction may need the locks of very many things. Two things that
    /// share one may keep each other busy, which its holders have to reckon with.
    pub(crate) fn one_of(self, n: u64, what: &str) -> Key {
        Key::new(&[what, &(self.0 % n).to_string()])
    }

    fn tag(self) -> pg_sys::LOCKTAG {
        pg_sys::LOCKTAG {
            // SAFETY: reads a variable.
            locktag_field1: unsafe { pg_sys::MyDatabaseId }.to_u32(),
            locktag_field2: (self.0 >> 32) as u32,
            locktag_field3: self.0 as u32,
            locktag_field4: TAG_CLASS,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }
}

/// Takes the lock if that needs no waiting, neither for a holder nor for a transaction that waits already.
pub(crate) fn try_lock(key: Key, mode: Mode) -> bool {
    acquire(key, mode, true)
}

/// The same; also gives up where the server has no room for one more lock, instead of raising an error.
pub(crate) fn try_lock_if_room(key: Key, mode: Mode) -> bool {
    let tag = key.tag();
    // SAFETY: as below, but that it neither waits nor complains of a full table.
    let result = unsafe {
        pg_sys::LockAcquireExtended(
            &tag,
            mode.level(),
            false,
            true,
            false,
            std::ptr::null_mut(),
            #[cfg(feature = "pg18")]
            false,
        )
    };
    result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

/// Whether the server has room for one more lock. If not, [`try_lock_if_room`] may say no although the lock is free.
pub(crate) fn has_room() -> bool {
    // SAFETY: reads a variable.
    let backend = unsafe { pg_sys::MyProcPid };
    // No other backend asks for this one.
    let key = Key::new(&["room", &backend.to_string()]);
    let room = try_lock_if_room(key, Mode::Beside);
    if room {
        unlock(key, Mode::Beside);
    }
    room
}

/// Gives up a lock that was taken in this mode by the same part of the transaction: the same subtransaction, or statement's portal,
/// which is what Postgres books it on.
pub(crate) fn unlock(key: Key, mode: Mode) {
    let tag = key.tag();
    // SAFETY: Postgres looks for the lock among those of this backend; one that is not there makes a warning.
    unsafe { pg_sys::LockRelease(&tag, mode.level(), false) };
}

/// Takes the lock; waits for the transactions that hold it.
pub(crate) fn lock(key: Key, mode: Mode) {
    acquire(key, mode, false);
}

fn acquire(key: Key, mode: Mode, at_once: bool) -> bool {
    let tag = key.tag();
    // SAFETY: a lock of the current (sub)transaction. It may raise an error, as if the lock table is full, or while it
    // waits (cancelled, or in a deadlock).
    let result = unsafe { pg_sys::LockAcquire(&tag, mode.level(), false, at_once) };
    result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_the_parts_of_a_name_apart() {
        assert_ne!(Key::new(&["a", "bc"]), Key::new(&["ab", "c"]));
        assert_ne!(Key::new(&["a", ""]), Key::new(&["", "a"]));
        assert_eq!(Key::new(&["a", "b"]), Key::new(&["a", "b"]));
    }

    #[test]
    fn few_keys_stand_for_many_and_are_used_evenly() {
        let keys: Vec<Key> =
            (0..10_000).map(|n| Key::new(&["g", &n.to_string()]).one_of(16, "some")).collect();
        for n in 0..16 {
            let key = Key::new(&["some", &n.to_string()]);
            let times = keys.iter().filter(|k| **k == key).count();
            assert!((400..900).contains(&times), "{times} of 10,000");
        }
    }
}
