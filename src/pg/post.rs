//! Posts: what one process at a time holds for as long as it lives, or until it gives it up.
//!
//! A post is a lock of the session on a tag of our own, which is only ever tried. No table says who has it: a process that dies
//! leaves its post.

use std::sync::atomic::{Ordering, fence};

use pgrx::pg_sys;

/// The fourth field of our lock tags, see [`super::latch::TAG_CLASS`]; another one than those of waiters and of locks.
const TAG_CLASS: u16 = 0x7473;

/// What one process at a time can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Post {
    /// That of the process which does what is due in this database, where a call has sent for it.
    OfDatabase,
    /// One of those that the server has for processes which calls have sent for.
    OfServer(u32),
}

impl Post {
    fn tag(self) -> pg_sys::LOCKTAG {
        let (database, number) = match self {
            // SAFETY: reads a variable.
            Post::OfDatabase => (unsafe { pg_sys::MyDatabaseId }.to_u32(), 0),
            Post::OfServer(number) => (0, number),
        };
        pg_sys::LOCKTAG {
            locktag_field1: database,
            locktag_field2: 0,
            locktag_field3: number,
            locktag_field4: TAG_CLASS,
            locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
            locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
        }
    }

    /// Takes the post, if it is free.
    pub(crate) fn take(self) -> bool {
        let tag = self.tag();
        // SAFETY: a lock of the session, which is not waited for. It raises an error if the lock table is full.
        let result = unsafe { pg_sys::LockAcquire(&tag, pg_sys::ExclusiveLock as i32, true, true) };
        result != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }

    /// Gives up a post that this process has. What this process reads afterwards it reads when others can find the post free.
    pub(crate) fn give_up(self) {
        let tag = self.tag();
        // SAFETY: releases a lock that `take` took.
        unsafe { pg_sys::LockRelease(&tag, pg_sys::ExclusiveLock as i32, true) };
        fence(Ordering::SeqCst);
    }

    /// Whether some process has it, or is just trying to.
    pub(crate) fn is_taken(self) -> bool {
        fence(Ordering::SeqCst);
        let tag = self.tag();
        // SAFETY: looks into the lock table; raises an error only for a lock method that there is not.
        unsafe { pg_sys::LockWaiterCount(&tag) != 0 }
    }
}
