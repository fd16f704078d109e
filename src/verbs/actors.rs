//! What concerns an actor by its name: how it is told of a loss, and ending its calls that sleep.

use pgrx::prelude::*;

use crate::ends::actors;
use crate::error::{or_throw, required};
use crate::input::{check_length, check_name};
use crate::pg::caller::Role;
use crate::pg::statement::Statement;
use crate::{rights, wake};

/// `taskq.lost_channel(actor_id text) -> text`
#[pg_extern(sql = "")]
fn taskq_lost_channel(actor_id: &str) -> String {
    actors::channel(or_throw(check_name("actor_id", Some(actor_id))))
}

static ROLES: Statement<(), Role> = Statement::new(c"SELECT r.oid FROM pg_catalog.pg_roles r");

/// `taskq.stop_waiting(actor_id text) -> bigint`: ends the calls of the caller's role; those of all roles, if it is an operator.
#[pg_extern(sql = "")]
fn taskq_stop_waiting(actor_id: Option<&str>) -> i64 {
    rights::for_caller(|| {
        let actor_id = required("actor_id", actor_id)?;
        check_length("actor_id", actor_id)?;
        let roles = if rights::operates() { ROLES.query(()) } else { vec![rights::caller()] };
        Ok(wake::stop(actor_id, roles.into_iter()) as i64)
    })
}
