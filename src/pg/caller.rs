//! Who calls, and acting with the rights of the queue's owner.
//!
//! Functions that are SECURITY DEFINER cannot tell which role calls them: Postgres has switched to the owner before they
//! begin, and neither the session's user nor the role of SET ROLE is who calls where another such function lies in
//! between. So those that have to know run with the caller's rights, and switch themselves, as Postgres would have.

use pgrx::pg_sys;
use pgrx::pg_sys::SysCacheIdentifier::{AUTHMEMMEMROLE, AUTHOID, NAMESPACEOID, PROCOID};

use super::changes::Changes;

/// A role of the cluster.
pub(crate) type Role = pg_sys::Oid;

/// The role with whose rights this backend works.
pub(crate) fn current() -> Role {
    // SAFETY: reads a variable.
    unsafe { pg_sys::GetUserId() }
}

/// While this is there the backend has the rights of the owner.
pub(crate) struct AsOwner {
    caller: Role,
    context: std::ffi::c_int,
}

impl AsOwner {
    /// Switches to the owner of the schema.
    pub(crate) fn begin() -> Self {
        let mut caller = pg_sys::InvalidOid;
        let mut context = 0;
        // SAFETY: two reads of variables, a look-up in the system cache whose tuple is released, and a change of the
        // variables as `fmgr_security_definer` makes it. An abort of the (sub)transaction puts back what was there
        // when that began, so that an error leaves nothing switched.
        unsafe {
            pg_sys::GetUserIdAndSecContext(&mut caller, &mut context);
            let owner = owner();
            pg_sys::SetUserIdAndSecContext(
                owner,
                context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as std::ffi::c_int,
            );
        }
        AsOwner { caller, context }
    }

    /// Who calls.
    pub(crate) fn caller(&self) -> Role {
        self.caller
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        // SAFETY: sets variables to what they were.
        unsafe { pg_sys::SetUserIdAndSecContext(self.caller, self.context) }
    }
}

/// Does something that raises no error as the user of the session, whatever role is set: nothing of the owner's comes into it.
pub(super) fn as_session_user<R>(work: impl FnOnce() -> R) -> R {
    let (mut user, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: reads and sets two variables, which are put back.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(pg_sys::GetSessionUserId(), 0);
    }
    let result = work();
    // SAFETY: as above.
    unsafe { pg_sys::SetUserIdAndSecContext(user, context) }
    result
}

/// # Safety
/// To be called in a transaction.
unsafe fn owner() -> Role {
    // SAFETY: the schema exists while a function in it runs; the tuple is of pg_namespace, and is read before it is
    // released.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"taskq".as_ptr(), false);
        let tuple = pg_sys::SearchSysCache1(NAMESPACEOID as std::ffi::c_int, pg_sys::Datum::from(schema));
        if tuple.is_null() {
            pgrx::error!("cache lookup failed for schema taskq");
        }
        let owner = (*pg_sys::heap_tuple_get_struct::<pg_sys::FormData_pg_namespace>(tuple)).nspowner;
        pg_sys::ReleaseSysCache(tuple);
        owner
    }
}

/// Of the rights on functions, of roles and of who is a member of which.
static RIGHTS: Changes<3> = Changes::of([PROCOID, AUTHOID, AUTHMEMMEMROLE]);

/// A number that is another one as soon as the rights on a function, a role or a membership have changed and this backend
/// has received the messages of that.
pub(crate) fn rights_version() -> u64 {
    RIGHTS.version()
}
