//! Verbs by chance, on a few ids, so that nearly every call meets another one on the same rows: after each the stored state is sound, and
//! in the end everything that is left can be done.
//!
//! Single calls never meet in a deadlock. Transactions of several calls may: PostgreSQL ends one with 40P01, and the caller answers by another
//! try. A call must not fail for any other reason that the contract does not name.
//!
//! Why: what a task has counted is worked out from its dependencies by many verbs, each of which may be the first after any other. On
//! wrong code `check()` names the counter, or a task is never freed. A failure says its seed, and the calls that led to it.

use std::env;

use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Grant, Session, sqlstate};

const IDS: u64 = 12;
const CONDITIONS: [&str; 3] = ["completed", "settled", "aborted"];

/// A client that holds tasks.
struct Client {
    random: Random,
    held: Vec<Grant>,
    /// Whether calls of one transaction each may be the victims of a deadlock: beside others of several.
    may_deadlock: bool,
    /// What it has called, for those who look for a fault.
    calls: Vec<String>,
}

impl Client {
    fn new(seed: u64, may_deadlock: bool) -> Self {
        Client { random: Random::new(seed), held: Vec::new(), may_deadlock, calls: Vec::new() }
    }

    fn id(&mut self) -> String {
        format!("t{}", self.random.below(IDS))
    }

    /// Some ids, in an array of SQL.
    fn ids(&mut self, most: u64) -> String {
        let number = 1 + self.random.below(most);
        let ids: Vec<String> = (0..number).map(|_| self.id()).collect();
        format!("'{{{}}}'", ids.join(","))
    }

    fn dependencies(&mut self, most: u64) -> Vec<Value> {
        let number = self.random.below(most + 1);
        let one =
            |client: &mut Client| json!({"id": client.id(), "condition": client.random.pick(&CONDITIONS)});
        (0..number).map(|_| one(self)).collect()
    }

    /// A task of another id, with what it depends on.
    fn task(&mut self) -> Value {
        let mut depends_on = self.dependencies(3);
        depends_on.sort_by_key(|one| one["id"].to_string());
        depends_on.dedup_by_key(|one| one["id"].to_string());
        let mut task = json!({
            "id": self.id(), "action": "w", "depends_on": depends_on, "group_id": "g", "priority": self.random.below(2),
            "max_tries": 1 + self.random.below(3), "retention": if self.random.chance(10) { "0" } else { "1 day" },
        });
        if self.random.chance(20) {
            task["to_signal_after"] = json!(self.dependencies(1));
        }
        match self.random.below(6) {
            0 => task["signal"] = json!(true),
            1 => task["spontaneous"] = json!(true),
            2 | 3 if !depends_on.is_empty() => {
                task["num_required"] = json!(1 + self.random.below(depends_on.len() as u64));
            }
            _ => {}
        }
        task
    }

    /// The call of a task in its hands.
    fn performance(&mut self) -> Option<String> {
        if self.held.is_empty() {
            return None;
        }
        let at = self.random.below(self.held.len() as u64) as usize;
        let Grant { task_id, token, .. } = &self.held[at];
        let give = format!("taskq.return_task('{task_id}', '{token}'");
        let step = format!("taskq.save_step('{task_id}', '{token}'");
        let call = match self.random.below(10) {
            0..3 => format!("{give}, 'completed')"),
            3 => format!("{give}, 'aborted')"),
            4 => format!("{give}, 'pending', retry_after => '0')"),
            5 => return Some(format!("SELECT {step}, 's{}')", self.random.below(3))),
            6 => {
                let children = json!([self.task(), self.task()]);
                format!("{give}, 'completed', children => '{children}', children_block => true)")
            }
            _ => {
                let mut named = self.dependencies(3);
                if self.random.chance(50) {
                    named.push(json!({"id": self.id(), "signal": true}));
                }
                let most = if self.random.chance(30) { ", wait_at_most => '20 ms'" } else { "" };
                format!("{give}, 'pending', depends_on => '{}'{most})", json!(named))
            }
        };
        self.held.swap_remove(at);
        Some(format!("SELECT {call}"))
    }

    fn call(&mut self) -> String {
        let call = match self.random.below(16) {
            0 | 1 => {
                format!(
                    "taskq.insert_tasks('{}', 'skip', if_missing => 'ignore')",
                    json!([self.task(), self.task()])
                )
            }
            2 => format!("taskq.replace_tasks('{}', if_missing => 'ignore')", json!([self.task()])),
            3 => format!("taskq.signal('{}')", self.id()),
            4 => format!("taskq.rerun_tasks({})", self.ids(2)),
            5 => format!("taskq.rerun_tasks({}, false)", self.ids(2)),
            6 | 7 => format!("taskq.retry_tasks({})", self.ids(2)),
            8 => format!("taskq.rewind_task('{}', 's{}')", self.id(), self.random.below(3)),
            9 => format!("taskq.delete_tasks({})", self.ids(2)),
            10 | 11 => {
                let condition = *self.random.pick(&CONDITIONS);
                let (after, run) = (self.ids(1), self.ids(1));
                format!("taskq.add_dependencies({after}, {run}, '{condition}', 'ignore')")
            }
            12 => format!("taskq.cancel_tasks({})", self.ids(2)),
            13 => format!("taskq.complete_task('{}')", self.id()),
            14 => format!("taskq.update_tasks({}, priority => 1, if_started => 'skip')", self.ids(3)),
            _ if self.random.chance(20) => "taskq.reset_group('g')".to_owned(),
            _ => "taskq.maintain()".to_owned(),
        };
        format!("SELECT {call}")
    }

    /// Makes one call. What is refused is refused as the reference says.
    fn step(&mut self, session: &mut Session) {
        if self.random.chance(35) {
            let most = 1 + self.random.below(2) as i32;
            self.calls.push(format!("own_tasks {most}"));
            let lease = if self.random.chance(20) { "lease => '1 ms'" } else { "lease => '1 minute'" };
            match session.own_with("w", most, &["w"], lease) {
                Ok(grants) => self.held.extend(grants),
                Err(error) => self.refused(&error),
            }
            return;
        }
        let performance = if self.random.chance(50) { self.performance() } else { None };
        let call = performance.unwrap_or_else(|| self.call());
        self.calls.push(call.clone());
        if let Err(error) = session.query(&call, &[]) {
            self.refused(&error);
        }
    }

    fn refused(&mut self, error: &postgres::Error) {
        let state = sqlstate(error);
        let allowed = ["TQ001", "TQ002", "TQ003", "TQ004", "TQ005", "TQ006", "TQ007"];
        let of_block = self.may_deadlock && ["40P01", "25P02"].contains(&state);
        assert!(of_block || allowed.contains(&state), "{error:?}\n{}", self.calls.join(";\n"));
    }
}

/// Everything that is left is done: nothing waits for what has ended, or for nothing.
fn drain(session: &mut Session, said: &dyn Fn() -> String) {
    session.run("SELECT taskq.release_tasks(actions => '{w}')");
    let open = "SELECT count(*) FROM taskq.tasks WHERE settled_at IS NULL";
    for _ in 0..200 {
        if session.one::<i64>(open) == 0 {
            return;
        }
        session.run("SELECT taskq.maintain()");
        session.run("SELECT taskq.signal(t.id) FROM taskq.task AS t WHERE t.signal");
        for grant in session.own("w", 20, &["w"]).unwrap() {
            session.complete(&grant);
        }
    }
    let left: Vec<String> = session
        .all("SELECT id || ': ' || why FROM taskq.tasks, taskq.why(id) AS why WHERE settled_at IS NULL");
    panic!("{left:?}\n{}", said());
}

/// `TASKQ_TEST_SOAK` times as many, if that is set.
fn seeds(few: u64) -> std::ops::RangeInclusive<u64> {
    1..=few
        * env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("TASKQ_TEST_SOAK is a number"))
}

#[test]
fn the_state_is_sound_after_each_call() {
    for seed in seeds(3) {
        let (_db, [mut session]) = Db::connected();
        let mut client = Client::new(seed, false);
        for _ in 0..250 {
            client.step(&mut session);
            let broken = session.broken();
            assert!(broken.is_empty(), "seed {seed}: {broken:?}\n{};", client.calls.join(";\n"));
        }
        drain(&mut session, &|| format!("seed {seed}\n{};", client.calls.join(";\n")));
    }
}

/// Clients beside each other, each with what it does.
fn beside_each_other(seed: u64, transactions: bool, work: fn(&mut Client, &mut Session)) {
    let db = Db::new();
    let clients: Vec<_> = (0..5)
        .map(|n| {
            db.connect().background(move |session| {
                // A deadlock is found at once instead of in a second.
                session.run("SET deadlock_timeout = '10ms'");
                let mut client = Client::new(100 * seed + n, transactions);
                work(&mut client, session);
                client.calls
            })
        })
        .collect();
    let calls: Vec<String> = clients.into_iter().map(|client| client.join().1.join(";\n")).collect();
    let mut session = db.connect();
    let broken = session.broken();
    assert!(broken.is_empty(), "seed {seed}: {broken:?}\n{}", calls.join("\n--\n"));
    drain(&mut session, &|| format!("seed {seed}\n{}", calls.join("\n--\n")));
}

#[test]
fn single_calls_beside_each_other_make_no_deadlock() {
    for seed in seeds(4) {
        beside_each_other(seed, false, |client, session| (0..300).for_each(|_| client.step(session)));
    }
}

/// Ends find counters locked, and are counted later.
#[test]
fn the_state_is_sound_after_transactions_beside_each_other() {
    for seed in seeds(4) {
        beside_each_other(seed, true, |client, session| {
            for _ in 0..80 {
                let ends = if client.random.chance(80) { "COMMIT" } else { "ROLLBACK" };
                session.run("BEGIN");
                for _ in 0..=client.random.below(3) {
                    client.step(session);
                }
                client.calls.push(ends.to_owned());
                session.run(ends);
            }
        });
    }
}
