//! Everything at once: limits of actions and groups, turns, rates, groups, workgroups, keys, schedules, dependencies, on
//! four sessions.
//!
//! Why: each of them moves tasks between the same tables, and each was right alone. On wrong code check() names a
//! contradiction, the limit is exceeded, a call fails in a way that is no refusal, or something never settles.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use postgres::Error;
use serde_json::{Value, json};
use taskq_tests::random::Random;
use taskq_tests::{Db, Grant, Session, sqlstate, until};

use crate::call;

const ACTIONS: [&str; 5] = ["limited", "rated", "plain", "timed", "fair"];
const GROUPS: [&str; 3] = ["g", "h", "i"];
const HELD: &str = "SELECT count(*) FROM taskq.tasks WHERE action = 'limited' AND state = 'in-progress' \
                    AND (action_deadline IS NULL OR action_deadline > taskq.clock())";

/// The most that is held of a group in the action that has a limit per group, and what is held of the group that has one of
/// its own.
const HELD_OF_GROUPS: &str = "SELECT ARRAY[COALESCE(max(n) FILTER (WHERE action = 'fair'), 0), \
                                           COALESCE(sum(n) FILTER (WHERE group_id = 'i'), 0)]::bigint[] \
      FROM (SELECT action, group_id, count(*) AS n FROM taskq.tasks WHERE state = 'in-progress' AND group_id IS NOT NULL \
               AND (action_deadline IS NULL OR action_deadline > taskq.clock()) GROUP BY action, group_id) AS g";

/// What a call among others may be refused with; anything else is a bug. Calls for whole groups may still deadlock with
/// others (40P01), as may a cancel of tasks that ride on another with their key.
const REFUSALS: [&str; 6] = ["TQ001", "TQ003", "TQ004", "TQ005", "TQ007", "40P01"];

/// How many calls worked and how many were refused with what.
type Tally = HashMap<String, u32>;

fn note<T>(tally: &mut Tally, what: &str, answer: Result<T, Error>) -> Option<T> {
    let code = answer.as_ref().err().map_or("fine", |error| sqlstate(error)).to_owned();
    assert!(code == "fine" || REFUSALS.contains(&code.as_str()), "{what}: {:?}", answer.err());
    *tally.entry(format!("{what} {code}")).or_default() += 1;
    answer.ok()
}

fn some_task(random: &mut Random, id: &str, known: &[String]) -> Value {
    let mut task = json!({"id": id, "action": random.pick(&ACTIONS), "priority": random.below(3)});
    if random.chance(40) {
        task["group_id"] = json!(random.pick(&GROUPS));
        task["seed"] = json!(random.chance(50));
    }
    if random.chance(20) {
        task["workgroup"] = json!(random.pick(&["api", "mail"]));
    }
    if random.chance(30) {
        task["merge_key"] = json!(format!("k{}", random.below(3)));
    }
    if random.chance(20) {
        task["max_tries"] = json!(1 + random.below(4));
    }
    if random.chance(30) && !known.is_empty() {
        let condition = random.pick(&["completed", "settled", "aborted"]);
        task["depends_on"] = json!([{"id": random.pick(known), "condition": condition}]);
    }
    task
}

fn settle(session: &mut Session, random: &mut Random, tally: &mut Tally, grant: &Grant) {
    let (code, arguments) = match random.below(8) {
        0 => ("pending", "retry_after => '5 milliseconds'"),
        1 => ("pending", "status => 'again', retry_after => '0'"),
        2 | 3 => ("aborted", "status => 'no'"),
        _ => ("completed", "result => '1'"),
    };
    let answer = session.give_with(&grant.task_id, grant.token, code, arguments);
    note(tally, "return", answer);
}

fn operate(session: &mut Session, random: &mut Random, tally: &mut Tally, known: &[String]) {
    let group = *random.pick(&GROUPS);
    let statement = match random.below(17) {
        0 | 1 => format!("SELECT taskq.pause_group('{group}')"),
        2..=4 => format!("SELECT taskq.resume_group('{group}')"),
        5 => format!("SELECT taskq.retry_group('{group}')"),
        6 => "SELECT taskq.resume_action('plain')".to_owned(),
        7 => format!("SELECT taskq.cancel_group('{group}')"),
        8 => format!("SELECT taskq.delay_workgroup('api', '{} milliseconds')", random.below(60)),
        9 => format!("SELECT taskq.set_action('limited', max_concurrency => {})", 1 + random.below(3)),
        10 => "SELECT taskq.maintain()".to_owned(),
        11 => "SELECT taskq.pause_action('plain')".to_owned(),
        12 => "SELECT taskq.resume_action('plain')".to_owned(),
        13 => format!("SELECT taskq.set_action('fair', max_per_group => {})", 1 + random.below(2)),
        14 => format!("SELECT taskq.set_group('i', max_concurrency => {})", 2 + random.below(2)),
        15 => format!("SELECT taskq.set_action('timed', fair => {})", random.chance(50)),
        _ => {
            let ids = format!("'{{\"{}\",\"{}\"}}'", random.pick(known), random.pick(known));
            let verb = random.pick(&["cancel_tasks", "delete_tasks", "retry_tasks"]);
            format!("SELECT taskq.{verb}({ids})")
        }
    };
    let what = statement.split(['.', '(']).nth(1).unwrap_or_default().to_owned();
    let answer = session.batch_execute(&statement);
    note(tally, &what, answer);
}

fn worker(session: &mut Session, seed: u64, end: Instant) -> Tally {
    let mut random = Random::new(seed);
    let (mut tally, mut known, mut round) = (Tally::new(), Vec::new(), 0);
    let mut kept: Vec<Grant> = Vec::new();
    while Instant::now() < end && round < 4000 {
        round += 1;
        if random.chance(30) || known.is_empty() {
            let mut tasks = Vec::new();
            for i in 0..1 + random.below(5) {
                let id = format!("{seed} {round} {i}");
                tasks.push(some_task(&mut random, &id, &known));
                known.push(id);
            }
            let answer = session.insert_with(json!(tasks), "if_missing => 'ignore'");
            note(&mut tally, "insert", answer);
        }
        if random.chance(25) {
            operate(session, &mut random, &mut tally, &known);
        }
        let rolled_back = random.chance(10);
        if rolled_back {
            session.run("BEGIN");
        }
        let lease = *random.pick(&["NULL", "NULL", "'5 milliseconds'"]);
        let room = 1 + random.below(4) as i32;
        let answer = session.own_with("w", room, &ACTIONS, &format!("lease => {lease}"));
        let grants = note(&mut tally, "own", answer).unwrap_or_default();
        if rolled_back {
            session.run("ROLLBACK");
            continue;
        }
        kept.extend(grants);
        while kept.len() > 3 {
            let grant = kept.remove(random.below(kept.len() as u64) as usize);
            if random.chance(20) {
                let answer = session.extend("heir", &[(&grant.task_id, grant.token)], "1 minute");
                note(&mut tally, "extend", answer);
            }
            settle(session, &mut random, &mut tally, &grant);
        }
    }
    kept.iter().for_each(|grant| settle(session, &mut random, &mut tally, grant));
    tally
}

#[test]
#[ignore = "long"]
fn all_of_it_at_once_stays_sound_and_leaves_nothing_stuck() {
    let db = Db::new();
    let mut main = db.connect();
    call(&mut main, "set_action('limited', max_concurrency => 3)");
    call(&mut main, "set_action('fair', max_per_group => 2)");
    call(&mut main, "set_group('i', max_concurrency => 3)");
    call(&mut main, "set_group('h', weight => 3)");
    call(&mut main, "set_action('rated', rate_limit => 200, rate_period => '1 second')");
    call(
        &mut main,
        r#"set_action('timed', max_timeouts => 3, backoff => '{"kind": "exponential", "initial": "1 millisecond", "max": "10 milliseconds"}')"#,
    );
    call(
        &mut main,
        "schedule('s', '* * * * * *', '{\"action\": \"plain\", \"group_id\": \"g\", \"merge_key\": \"k0\"}', overlap => 'queue')",
    );
    let end = Instant::now() + Duration::from_secs(20);
    let tally = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                let mut session = db.connect();
                scope.spawn(move || worker(&mut session, seed, end))
            })
            .collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let held: i64 = main.one(HELD);
            assert!(held <= 3, "{held} are held of 3");
            let groups: Vec<i64> = main.one(HELD_OF_GROUPS);
            assert!(groups[0] <= 2 && groups[1] <= 3, "{groups:?} are held of 2 and 3");
            let broken = main.broken();
            assert!(broken.is_empty(), "{broken:#?}");
        }
        let mut total = Tally::new();
        for worker in workers {
            for (what, n) in worker.join().expect("a worker") {
                *total.entry(what).or_default() += n;
            }
        }
        total
    });
    for what in ["own fine", "return fine", "retry_group fine", "pause_group fine"] {
        assert!(tally.get(what).is_some_and(|n| *n > 10), "enough of {what}: {tally:?}");
    }
    drain(&mut main);
    assert!(main.broken().is_empty(), "{:?}", main.broken());
}

/// Lifts whatever holds tasks back; then everything must settle.
fn drain(main: &mut Session) {
    call(main, "unschedule('s')");
    for group in GROUPS {
        main.batch_execute(&format!("SELECT taskq.resume_group('{group}')")).ok();
    }
    call(main, "delay_workgroup('api', '0')");
    call(main, "resume_action('plain')");
    call(main, "set_action('rated', clear => '{rate_limit}')");
    // No worker comes back to what was abandoned without a deadline; there is none, but a reset may have left a token
    // void.
    until("all has settled", || {
        for grant in main.own("end", 1000, &ACTIONS).unwrap() {
            main.complete(&grant);
        }
        let left: i64 =
            main.one("SELECT count(*) FROM taskq.tasks WHERE state NOT IN ('completed', 'aborted')");
        (left == 0).then_some(())
    });
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.slot WHERE task_no IS NOT NULL"), 0);
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.parked"), 0);
    assert_eq!(main.one::<i64>("SELECT count(*) FROM taskq.merge_key WHERE holder_no IS NOT NULL"), 0);
}
