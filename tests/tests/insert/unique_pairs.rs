//! Of two calls with unique keys at once the outcome is that of one after the other, in one of the two orders.
//!
//! Why: an element is left out for a task that is there, and is lost if that is not to stay, or was left out itself. Each of the
//! two is right alone; what the second has decided by before it had to wait may have changed.

use std::thread;

use taskq_tests::random::Random;
use taskq_tests::{Db, Progress, Session};

use crate::unique_model::{Call, Element, Outcome};
use crate::unique_random::{Names, answer, array, as_json, scene, stored};

struct Array {
    elements: Vec<Element>,
    on_conflict: &'static str,
    ignore_missing: bool,
}

impl Array {
    fn new(random: &mut Random) -> Array {
        let mut elements = array(random, 2);
        // What that comes to depends on how much time there is between the two.
        elements
            .iter_mut()
            .filter_map(|element| element.unique.as_mut())
            .for_each(|unique| unique.max_wait = false);
        let on_conflict = *random.pick(&["error", "skip", "skip", "replace"]);
        Array { elements, on_conflict, ignore_missing: random.chance(90) }
    }

    /// The answer. Of refusals it is not said which of several reasons they tell.
    fn call(&self, session: &mut Session, begin: &str, names: &mut Names) -> Option<Vec<String>> {
        let Array { elements, on_conflict, ignore_missing } = self;
        let call = Call { elements, on_conflict, ignore_missing: *ignore_missing };
        let answer = answer(session, &call, begin, names);
        if let Err(code) = &answer {
            assert!(code.starts_with("TQ00"), "{code}: {}", as_json(elements));
        }
        answer.ok()
    }
}

type Answers = [Option<Vec<String>>; 2];

/// Names without what is made up anew each time.
const BEGIN: [&str; 2] = ["first ", "second "];

fn one_after_the_other(session: &mut Session, arrays: &[Array; 2], order: [usize; 2]) -> (Answers, Outcome) {
    let (mut answers, mut names) = (Answers::default(), Names::new());
    session.run("BEGIN");
    for at in order {
        session.run("SAVEPOINT call");
        answers[at] = arrays[at].call(session, BEGIN[at], &mut names);
        session.run(if answers[at].is_some() { "RELEASE call" } else { "ROLLBACK TO call" });
    }
    let outcome = stored(session, &names, "' ' || state");
    session.run("ROLLBACK");
    (answers, outcome)
}

/// The first stays open until the second waits, or has ended. Returns also whether it has waited.
fn at_once(
    mut sessions: [Session; 2],
    watcher: &mut Session,
    arrays: [Array; 2],
) -> (bool, Answers, Outcome) {
    let (mut names, [first, second]) = (Names::new(), arrays);
    sessions[0].run("BEGIN");
    let one = first.call(&mut sessions[0], BEGIN[0], &mut names);
    let [mut session, other] = sessions;
    let call = other.background(move |session| {
        let mut names = Names::new();
        (second.call(session, BEGIN[1], &mut names), names)
    });
    let waited = call.settle_down(watcher) == Progress::Blocked;
    session.run(if one.is_some() { "COMMIT" } else { "ROLLBACK" });
    let (mut other, (two, of_other)) = call.join();
    names.extend(of_other);
    let two = two.map(|reports| reports.into_iter().map(|report| renamed(report, &names)).collect());
    let outcome = stored(&mut other, &names, "' ' || state");
    assert_eq!(other.broken(), Vec::<String>::new());
    (waited, [one, two], outcome)
}

/// The second may name what the first has made up.
fn renamed(report: String, names: &Names) -> String {
    names.iter().fold(report, |report, (id, name)| report.replace(id, name))
}

fn agree(seed: u64, pairs: u64) {
    let db = Db::new();
    let (mut session, mut random) = (db.connect(), Random::new(seed));
    let mut all_waited = 0;
    for at in 0..pairs {
        scene(&mut session, &mut random);
        let before = stored(&mut session, &Names::new(), "' ' || state");
        let arrays = [Array::new(&mut random), Array::new(&mut random)];
        let told: Vec<String> = arrays
            .iter()
            .map(|array| {
                format!("{} {} {}", as_json(&array.elements), array.on_conflict, array.ignore_missing)
            })
            .collect();
        let serial = [[0, 1], [1, 0]].map(|order| one_after_the_other(&mut session, &arrays, order));
        let (waited, answers, outcome) = at_once([db.connect(), db.connect()], &mut session, arrays);
        all_waited += u64::from(waited);
        let got = (answers, outcome);
        assert!(
            serial.contains(&got),
            "seed {seed}, pair {at}\nstored: {before:#?}\n{told:#?}\ngot: {got:#?}\none after the other: {serial:#?}"
        );
        db.clear();
    }
    assert!(all_waited * 5 > pairs, "only {all_waited} of {pairs} have waited");
}

#[test]
fn two_calls_at_once_come_to_what_one_after_the_other_does() {
    thread::scope(|scope| {
        for seed in 1..=2 {
            scope.spawn(move || agree(seed, 100));
        }
    });
}

#[test]
#[ignore = "long"]
fn many_times_two_calls_at_once_come_to_what_one_after_the_other_does() {
    thread::scope(|scope| {
        for seed in 11..=12 {
            scope.spawn(move || agree(seed, 400));
        }
    });
}
