//! The extension as a background process meets it: held against DROP for a transaction, and worked for with its owner's
//! rights.
//!
//! A background process connects as the first superuser, since it has to be there for all who use the queue, and a role that
//! may not log in could not be connected as. What belongs to the extension may belong to a role that is none. So before the
//! process has become its owner, for a security-restricted operation, it only locks the extension and reads its row in the
//! catalog: whatever code it meets later it runs with that role's rights, and that code cannot get the session's back.

use std::ffi::c_int;

use pgrx::pg_sys;

use super::caller::Role;
use super::quiet;

/// The extension in this database, locked until the end of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The extension.
    pub(crate) extension: pg_sys::Oid,
    /// The role that it belongs to.
    pub(crate) owner: Role,
}

/// The extension in this database, locked until the end of the transaction so that it is not dropped under us; `None` if
/// it is not there. It takes a shared lock, reads catalogs, and runs no statement.
pub(crate) fn hold() -> Option<Held> {
    // SAFETY: looks up and locks a catalog entry inside a transaction.
    let extension = unsafe {
        let before = pg_sys::get_extension_oid(c"taskq".as_ptr(), true);
        if before == pg_sys::InvalidOid {
            return None;
        }
        pg_sys::LockDatabaseObject(pg_sys::ExtensionRelationId, before, 0, pg_sys::AccessShareLock as i32);
        // It may have been dropped, or dropped and created again, while we waited.
        (pg_sys::get_extension_oid(c"taskq".as_ptr(), true) == before).then_some(before)?
    };
    Some(Held { extension, owner: owner(extension)? })
}

/// The role that the extension belongs to.
fn owner(extension: pg_sys::Oid) -> Option<Role> {
    // SAFETY: the catalog is open, and locked, while it is read; a row is of its type, and is read before the scan ends. The
    // function compares two OIDs.
    unsafe {
        let catalog =
            pg_sys::table_open(pg_sys::ExtensionRelationId, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let mut is_it = quiet::scan_key(
            pg_sys::Anum_pg_extension_oid as i16,
            pg_sys::BTEqualStrategyNumber as pg_sys::StrategyNumber,
            pg_sys::F_OIDEQ,
            pg_sys::Datum::from(extension),
        );
        let index = pg_sys::Oid::from(pg_sys::ExtensionOidIndexId);
        let scan = pg_sys::systable_beginscan(catalog, index, true, std::ptr::null_mut(), 1, &mut is_it);
        let tuple = pg_sys::systable_getnext(scan);
        let owner = (!tuple.is_null())
            .then(|| (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_extension>()).extowner);
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        owner
    }
}

impl Held {
    /// Makes this process the owner, for a security-restricted operation, until [`be_session_user`] or an abort.
    pub(crate) fn be_owner(self) {
        let context = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION;
        // SAFETY: sets two variables, as `fmgr_security_definer` does; the abort of the transaction puts back what was there
        // when it began.
        unsafe { pg_sys::SetUserIdAndSecContext(self.owner, context as c_int) }
    }
}

/// Makes this process what it has connected as. To be called when a transaction has been committed, since the commit does not.
pub(super) fn be_session_user() {
    // SAFETY: reads a variable, and sets what `be_owner` has set.
    unsafe { pg_sys::SetUserIdAndSecContext(pg_sys::GetSessionUserId(), 0) }
}
