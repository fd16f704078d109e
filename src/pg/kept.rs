//! What the plans that this backend has kept look like, for a test.

use std::cell::RefCell;
use std::ffi::CStr;

use pgrx::pg_sys;

use super::statement::Prepared;

thread_local! {
    static KEPT: RefCell<Vec<&'static Prepared>> = const { RefCell::new(Vec::new()) };
}

/// A statement has got a plan.
pub(super) fn note(statement: &'static Prepared) {
    KEPT.with_borrow_mut(|kept| kept.push(statement));
}

/// The text of each statement that this backend has planned, and its plan as Postgres writes down nodes.
pub(crate) fn plans() -> Vec<(String, String)> {
    KEPT.with_borrow(|kept| {
        kept.iter()
            .map(|statement| (statement.text().to_string_lossy().into_owned(), plan(statement)))
            .collect()
    })
}

/// The text of each statement of which a plan was made for one execution only.
pub(crate) fn planned_for_one_call() -> Vec<String> {
    KEPT.with_borrow(|kept| {
        let planned = kept.iter().filter(|statement| {
            // SAFETY: a field of what stays as long as the plan is read.
            unsafe { (*source(statement)).num_custom_plans > 0 }
        });
        planned.map(|statement| statement.text().to_string_lossy().into_owned()).collect()
    })
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
