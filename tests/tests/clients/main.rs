//! The example clients, each against a real server, and the queue behind PgBouncer.
//!
//! `examples/clients/setup.sh` installs what they need; a test without it fails and says so.

mod detached;
mod drivers;
mod failover;
mod gate;
mod monitoring;
mod orders;
mod page;
mod pgbouncer;
mod pools;
mod results;
mod tools;
mod workers;
