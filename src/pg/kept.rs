//! What the plans that this backend has kept look like, for a test.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::statement::{Prepared, planned};

/// The text of each statement of which this backend keeps a plan, and that plan as Postgres writes down nodes.
pub(crate) fn plans() -> Vec<(String, String)> {
    planned().iter().map(|statement| (text(statement), plan(statement))).collect()
}

/// The text of each of these statements of which a plan was made for one execution only.
pub(crate) fn planned_for_one_call() -> Vec<String> {
    let for_one_call = |statement: &&&'static Prepared| {
        // SAFETY: a field of what stays as long as the plan is read.
        unsafe { (*source(statement)).num_custom_plans > 0 }
    };
    planned().iter().filter(for_one_call).map(|statement| text(statement)).collect()
}

fn text(statement: &Prepared) -> String {
    statement.text().to_string_lossy().into_owned()
}

fn source(statement: &Prepared) -> *mut pg_sys::CachedPlanSource {
    // SAFETY: the plan is a kept one, and of one statement.
    unsafe {
        let sources = pg_sys::SPI_plan_get_plan_sources(statement.kept_plan());
        (*(*sources).elements).ptr_value.cast()
    }
}

fn plan(statement: &Prepared) -> String {
    // SAFETY: the source stays as long as the plan. What Postgres writes is a string in the memory of the caller.
    unsafe {
        let source = source(statement);
        if (*source).gplan.is_null() {
            return String::new();
        }
        let text = pg_sys::nodeToString((*(*source).gplan).stmt_list.cast());
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
