//! What concerns an actor by its name, whatever it holds: how it is told of a loss.

use pgrx::prelude::*;

use crate::ends::actors;

/// `taskq.lost_channel(actor_id text) -> text`
#[pg_extern(sql = "")]
fn taskq_lost_channel(actor_id: &str) -> String {
    actors::channel(actor_id)
}
