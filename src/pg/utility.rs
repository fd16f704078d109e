//! Commands that want a database for themselves, and what is done before they begin.

use std::ffi::CStr;

use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;

/// The hook that was there before ours.
static mut BEFORE: pg_sys::ProcessUtility_hook_type = None;

/// What to do before a command that wants a database for itself.
static mut VACATE: Option<fn(pg_sys::Oid)> = None;

/// Has `vacate` called before DROP, ALTER … RENAME and ALTER … TABLESPACE of a database, and before CREATE
/// DATABASE makes a copy of one that it names as its TEMPLATE, if the user has the rights of that database's owner.
pub(crate) fn before_exclusive_commands(vacate: fn(pg_sys::Oid)) {
    // SAFETY: set by the postmaster while it loads the library, before it starts anything.
    unsafe {
        VACATE = Some(vacate);
        BEFORE = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(on_utility);
    }
}

#[pg_guard]
#[allow(clippy::too_many_arguments, reason = "the signature is Postgres'")]
unsafe extern "C-unwind" fn on_utility(
    statement: *mut pg_sys::PlannedStmt,
    query: *const std::ffi::c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: as Postgres calls the hook; everything is handed on as it came.
    unsafe {
        if let (Some(database), Some(vacate)) = (wanted((*statement).utilityStmt), VACATE)
            && owns(database)
        {
            vacate(database);
        }
        match BEFORE {
            // An error in it jumps: caught there, it goes on through our frames as a panic.
            Some(next) => pg_guard_ffi_boundary(|| {
                next(statement, query, read_only, context, params, environment, destination, completion)
            }),
            None => pg_sys::standard_ProcessUtility(
                statement,
                query,
                read_only,
                context,
                params,
                environment,
                destination,
                completion,
            ),
        }
    }
}

/// The database that the statement wants for itself, if there is one of that name.
///
/// # Safety
/// The statement must be a parse tree, or null.
unsafe fn wanted(statement: *mut pg_sys::Node) -> Option<pg_sys::Oid> {
    // SAFETY: the tag says which structure it is; names are C strings, or null where they are left out.
    unsafe {
        let name = match statement.as_ref()?.type_ {
            pg_sys::NodeTag::T_DropdbStmt => (*statement.cast::<pg_sys::DropdbStmt>()).dbname,
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let statement = statement.cast::<pg_sys::AlterDatabaseStmt>();
                option((*statement).options, c"tablespace").map(|_| (*statement).dbname)?
            }
            pg_sys::NodeTag::T_RenameStmt => {
                let statement = statement.cast::<pg_sys::RenameStmt>();
                if (*statement).renameType != pg_sys::ObjectType::OBJECT_DATABASE {
                    return None;
                }
                (*statement).subname
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                let statement = statement.cast::<pg_sys::CreatedbStmt>();
                pg_sys::defGetString(option((*statement).options, c"template")?)
            }
            _ => return None,
        };
        if name.is_null() {
            return None;
        }
        let database = pg_sys::get_database_oid(name, true);
        (database != pg_sys::InvalidOid).then_some(database)
    }
}

/// The option of that name.
///
/// # Safety
/// The list must be one of `DefElem`, or null.
unsafe fn option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: a list of pointers, of this length.
    unsafe {
        let list = options.as_ref()?;
        (0..list.length as usize)
            .map(|i| (*list.elements.add(i)).ptr_value.cast::<pg_sys::DefElem>())
            .find(|element| CStr::from_ptr((**element).defname) == name && !(**element).arg.is_null())
    }
}

/// Whether the user has the rights of the database's owner: no other can send a worker away by such a command.
fn owns(database: pg_sys::Oid) -> bool {
    // SAFETY: looks up catalog entries in a transaction, which every such command runs in.
    unsafe {
        #[cfg(any(feature = "pg14", feature = "pg15"))]
        return pg_sys::pg_database_ownercheck(database, pg_sys::GetUserId());
        #[cfg(not(any(feature = "pg14", feature = "pg15")))]
        return pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, pg_sys::GetUserId());
    }
}
