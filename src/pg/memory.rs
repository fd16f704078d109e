//! What happens when Rust's allocator finds no memory in a session: it ends, and the server goes on.
//!
//! Rust's usual answer to a failed allocation is `abort()`, and a backend that aborts takes every session of the
//! cluster with it. PostgreSQL's is an error that rolls the transaction back, but an allocator may not unwind. So the
//! session ends here with a FATAL error, as when it is terminated: Postgres' exit callbacks roll back and give up the
//! locks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::pg_sys;

/// What ends a session. It is set where a server loads this library: a unit test has nothing of a server's, and the allocator
/// must not ask for it there.
static END_SESSION: OnceLock<fn(usize)> = OnceLock::new();

/// To be called when the library is loaded.
pub(crate) fn init() {
    END_SESSION.get_or_init(|| end_session);
}

/// The system's allocator, which ends a session rather than come back to it empty-handed: see [`end_session`].
struct OrEndSession;

#[global_allocator]
static ALLOCATOR: OrEndSession = OrEndSession;

// SAFETY: the system's allocator, to which everything is handed on. Where it returns null, so does this, or it does
// not return; it never unwinds.
unsafe impl GlobalAlloc for OrEndSession {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches for.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller vouches for.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller vouches for.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller vouches for.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[inline]
fn given(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null()
        && let Some(end_session) = END_SESSION.get()
    {
        end_session(size);
    }
    memory
}

/// Ends the session, if this is one and is not ending yet; else Rust aborts, as it would have done.
#[cold]
fn end_session(size: usize) {
    static ENDING: AtomicBool = AtomicBool::new(false);
    // SAFETY: reads variables of the server that has loaded this library.
    let in_session = unsafe { pg_sys::IsUnderPostmaster && !pg_sys::MyProc.is_null() };
    if !in_session || ENDING.swap(true, Ordering::Relaxed) {
        return;
    }
    // Nothing here may need memory of Rust's: the numbers go into a buffer on the stack.
    let mut detail = [0_u8; 64];
    let detail = write_size(&mut detail, size);
    // SAFETY: all fields may be zero; the texts end with a NUL and outlive the call. FATAL does not jump: it runs the
    // exit callbacks, which roll the transaction back, and ends the process. The memory of the error is one that
    // Postgres has put aside for the case that there is none.
    unsafe {
        let mut data: pg_sys::ErrorData = std::mem::zeroed();
        data.elevel = pg_sys::FATAL as i32;
        data.sqlerrcode = pg_sys::errcodes::PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY as i32;
        data.message = c"out of memory".as_ptr().cast_mut();
        data.detail = detail.as_ptr().cast_mut().cast();
        data.hint = c"Give the call less at a time.".as_ptr().cast_mut();
        data.assoc_context = pg_sys::ErrorContext;
        pg_sys::ThrowErrorData(&mut data);
    }
}

/// Writes what was asked for, with a NUL at the end.
fn write_size(buffer: &mut [u8; 64], size: usize) -> &[u8] {
    use std::io::Write;
    let mut rest = &mut buffer[..63];
    // What does not fit is left out, and the last byte is 0.
    let _ = write!(rest, "taskq asked for {size} bytes.");
    buffer
}

#[cfg(test)]
mod tests {
    use super::write_size;

    #[test]
    fn the_largest_size_fits_with_its_end() {
        let mut buffer = [0; 64];
        let text = std::ffi::CStr::from_bytes_until_nul(write_size(&mut buffer, usize::MAX));
        assert_eq!(text.map(|text| text.to_bytes().last().copied()), Ok(Some(b'.')));
    }
}
