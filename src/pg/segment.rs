//! Bytes for another process, in a segment of shared memory.

use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys;

/// Bytes that a background process can read to which it is [`sent`].
pub(crate) struct Segment(*mut pg_sys::dsm_segment);

impl Segment {
    /// One with these bytes; `None` if the server has as many as it may have.
    pub(crate) fn of(bytes: &[u8]) -> Option<Segment> {
        let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS as i32;
        // SAFETY: the segment belongs to the resource owner of the subtransaction, which gives it up after an error. It is as long
        // as what is copied: the number of bytes first, since the memory may be longer.
        unsafe {
            let segment = pg_sys::dsm_create(bytes.len() + size_of::<usize>(), flags);
            if segment.is_null() {
                return None;
            }
            let start: *mut u8 = pg_sys::dsm_segment_address(segment).cast();
            start.cast::<usize>().write_unaligned(bytes.len());
            start.add(size_of::<usize>()).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Some(Segment(segment))
        }
    }

    /// By which another process finds it.
    pub(crate) fn name(&self) -> String {
        // SAFETY: the segment is there as long as this is.
        unsafe { pg_sys::dsm_segment_handle(self.0) }.to_string()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // While a panic carries an error outwards, the rollback that follows detaches it.
        if !std::thread::panicking() {
            // SAFETY: it is attached, once.
            unsafe { pg_sys::dsm_detach(self.0) }
        }
    }
}

/// The bytes of the segment whose name has come with this background process; `None` if it is not there any more, for instance.
pub(crate) fn sent() -> Option<Vec<u8>> {
    let handle: pg_sys::dsm_handle = BackgroundWorker::get_extra().parse().ok()?;
    // SAFETY: attached, read and detached here; no more is read than the mapping has room for, also where the segment is not one
    // of ours.
    unsafe {
        let segment = pg_sys::dsm_attach(handle);
        if segment.is_null() {
            return None;
        }
        let start: *const u8 = pg_sys::dsm_segment_address(segment).cast();
        let length = start.cast::<usize>().read_unaligned();
        let fits = length <= pg_sys::dsm_segment_map_length(segment).saturating_sub(size_of::<usize>());
        let bytes = fits.then(|| std::slice::from_raw_parts(start.add(size_of::<usize>()), length).to_vec());
        pg_sys::dsm_detach(segment);
        bytes
    }
}
