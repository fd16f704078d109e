//! What goes wrong.

use std::thread;
use std::time::{Duration, Instant};

use postgres::Config;
use taskq_tests::random::Random;
use taskq_tests::{Session, sqlstate, until};

use super::GROUPS;
use super::book::Book;
use crate::Rig;

pub fn group(n: u64) -> String {
    format!("group{n}")
}

/// One fault after the other, until it is time.
pub fn sabotage(rig: &Rig, book: &Book, seed: u64, end: Instant) {
    let mut random = Random::new(seed + 77);
    // The first ones are one of each.
    let mut turn = 0;
    while Instant::now() < end || turn < 5 {
        thread::sleep(Duration::from_millis(300 + random.below(1200)));
        let shard = usize::try_from(random.below(3)).unwrap();
        let what = if turn < 5 { turn } else { random.below(14) };
        turn += 1;
        match what {
            0 | 5 | 6 => {
                book.count("shards killed with SIGKILL, and started");
                rig.server(1 + shard % 2).crash();
            }
            1 | 7 => {
                book.count("shards stopped with -m immediate, and started");
                rig.server(1 + shard % 2).stop_now();
                thread::sleep(Duration::from_millis(random.below(1500)));
                rig.server(1 + shard % 2).restart();
            }
            2 | 8 => {
                // It has a shard as well.
                book.count("routers killed with SIGKILL, and started");
                rig.server(0).crash();
            }
            3 | 9 => {
                book.count("shards closed, and opened");
                let mut router = rig.router();
                router.run(&format!("SELECT taskq_router.close_shard({shard})"));
                thread::sleep(Duration::from_millis(random.below(800)));
                router.run(&format!("SELECT taskq_router.open_shard({shard})"));
            }
            _ => {
                let (mut session, what) = if random.chance(30) {
                    (rig.router(), "sessions of the router terminated")
                } else {
                    (rig.shard(shard), "sessions of shards terminated")
                };
                let query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                              WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
                              ORDER BY random() LIMIT 3";
                for _ in session.query(query, &[]).unwrap() {
                    book.count(what);
                }
            }
        }
    }
}

/// Groups go from shard to shard, as far as they can be moved, while all the rest happens.
pub fn move_groups(seed: u64, config: &Config, book: &Book) {
    let mut random = Random::new(seed + 78);
    while !book.over() {
        thread::sleep(Duration::from_millis(500));
        let Ok(mut session) = Session::open(config) else { continue };
        let (group, shard) = (group(random.below(GROUPS)), random.below(3));
        if session.query("SELECT taskq.pause_group($1)", &[&group]).is_ok() {
            // Until those in progress are returned, or their leases are over and swept.
            for _ in 0..8 {
                let call = format!("CALL taskq_router.move_group('{group}', {shard})");
                match session.batch_execute(&call) {
                    Ok(()) => {
                        book.count("moves of groups that ended well");
                        break;
                    }
                    Err(error) if error.as_db_error().is_some() => {
                        book.count("moves of groups that failed");
                        let state = sqlstate(&error);
                        let expected =
                            state.starts_with("08") || ["TQ005", "TQ007", "57P01"].contains(&state);
                        if !expected {
                            book.wrong(format!("a move: {error:?}"));
                        }
                    }
                    Err(_) => break,
                }
                thread::sleep(Duration::from_millis(400));
            }
        }
        // With whatever connection there is.
        if random.chance(50) {
            settle_group(&mut open(config), book, &group);
        } else if let Ok(mut session) = Session::open(config) {
            session.batch_execute(&format!("CALL taskq_router.undo_move('{group}')")).ok();
            session.query("SELECT taskq.resume_group($1)", &[&group]).ok();
        }
    }
}

fn open(config: &Config) -> Session {
    until("the router is back", || Session::open(config).ok())
}

/// Finishes a move of a group or takes it back, and lets the group go on.
pub fn settle_group(session: &mut Session, book: &Book, group: &str) {
    let undo = format!("CALL taskq_router.undo_move('{group}')");
    let refused = session.batch_execute(&undo).err();
    let behind = refused.and_then(|error| error.as_db_error().map(|error| error.code().code() == "TQ005"));
    if behind == Some(true) {
        let query = "SELECT shard FROM taskq_router.moved WHERE group_id = $1 AND left_on IS NOT NULL";
        let rows = session.query(query, &[&group]).unwrap_or_default();
        for row in rows {
            let shard: i32 = row.get(0);
            book.count("moves that could only be finished");
            session.batch_execute(&format!("CALL taskq_router.move_group('{group}', {shard})")).ok();
        }
    }
    session.query("SELECT taskq.resume_group($1)", &[&group]).ok();
}
