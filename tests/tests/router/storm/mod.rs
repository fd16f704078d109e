//! The torture run through the router: clients that know nothing else, while shards and the router are killed, stopped and started,
//! sessions are terminated, shards are closed, and groups move. What each client asked and was told is in one [`book`]; in the end
//! the shards must agree with it:
//!
//! * what was acknowledged as inserted is there, on one shard, and settled; what was never sent is not
//! * a task has ended once, in the way in which a token said so; a token that was used is refused, and none is granted twice
//! * no client is granted a task while another one holds it, or before those that it depends on have been returned
//! * a child is there if its parent's return was accepted; what depends on something still does, also where its group has moved
//! * all of a group is on the shard where the router looks for it
//! * `taskq.check()` finds nothing on any shard
//!
//! Left out of what `make torture` does to one server: limits, rates, workgroups, merge keys and schedules, which are promised on each
//! shard alone and tried there; open transactions of clients, for the router's is not the shard's; rebuilt indexes.
//!
//! The short form runs with all others. `TASKQ_TORTURE_ROUTER=600 TASKQ_TORTURE_SEED=7` is the long one (`make torture-router`).

mod audit;
mod book;
mod client;
mod saboteur;
mod tests;

use std::collections::HashMap;
use std::env;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use book::Book;
use taskq_tests::Session;

use super::{Rig, Servers};

/// Which the tasks are of.
const GROUPS: u64 = 24;
const CLIENTS: u64 = 6;

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number: {value}")))
}

/// Which shard the router takes to have each group.
fn homes(router: &mut Session) -> HashMap<String, usize> {
    (0..GROUPS)
        .map(saboteur::group)
        .map(|group| {
            let shard: i32 = router.one(&format!("SELECT taskq_router.shard_for('{group}')"));
            (group, usize::try_from(shard).unwrap())
        })
        .collect()
}

#[test]
fn nothing_is_lost_or_done_twice_while_all_goes_wrong() {
    let Some(servers) = Servers::get() else { return };
    let rig = Rig::alone(&servers, 3);
    let soak = number("TASKQ_TEST_SOAK").unwrap_or(1);
    let seconds = number("TASKQ_TORTURE_ROUTER").unwrap_or(10 * soak);
    let seed = number("TASKQ_TORTURE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("seed {seed}, {seconds} s (TASKQ_TORTURE_ROUTER={seconds} TASKQ_TORTURE_SEED={seed})");
    let book = Arc::new(Book::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (config, book) = (rig.router_config(), Arc::clone(&book));
            thread::spawn(move || client::Client::new(n, seed, config, book).run())
        })
        .collect();
    let mover = {
        let (config, book) = (rig.router_config(), Arc::clone(&book));
        thread::spawn(move || saboteur::move_groups(seed, &config, &book))
    };
    saboteur::sabotage(&rig, &book, seed, Instant::now() + Duration::from_secs(seconds));
    book.end();
    for client in clients {
        client.join().expect("a client does not panic");
    }
    mover.join().expect("the mover does not panic");
    for n in 0..GROUPS {
        // What a move has left is finished or taken back, and nothing stays paused.
        saboteur::settle_group(&mut rig.router(), &book, &saboteur::group(n));
    }
    client::work_off(&mut rig.router(), &book);
    let states: Vec<_> = (0..3).map(|shard| audit::state(&mut rig.shard(shard))).collect();
    let found = book.audit(&states, &homes(&mut rig.router()));
    println!("{}", book.report(&states));
    let tried = [
        "grants",
        "returns accepted",
        "used tokens refused",
        "shards killed with SIGKILL, and started",
        "shards stopped with -m immediate, and started",
        "routers killed with SIGKILL, and started",
        "shards closed, and opened",
    ];
    for what in tried {
        assert!(book.counted(what) > 0, "nothing of this was tried: {what}");
    }
    assert!(found.is_empty(), "seed {seed}: {} findings: {:#?}", found.len(), &found[..found.len().min(20)]);
}
