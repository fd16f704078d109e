//! The business row and its tasks are one transaction.

use std::process::Command;
use std::thread;

use taskq_tests::{Db, until};

use crate::gate::Gate;
use crate::tools::{Client, Worker, go, java, node, python, ruby};

/// By what it is written with.
type Program = (&'static str, fn() -> Command);

const PROGRAMS: [Program; 7] = [
    ("SQLAlchemy", || python("python/enqueue.py")),
    ("Django", || python("python/enqueue_django.py")),
    ("Node", || node("node/enqueue.js")),
    ("Drizzle", || node("node/enqueue_drizzle.js")),
    ("Go", || go("enqueue")),
    ("Java", || java("Enqueue")),
    ("Ruby", || ruby("ruby/enqueue.rb")),
];

#[test]
fn an_order_and_its_tasks_commit_together_or_not_at_all() {
    thread::scope(|scope| {
        for (name, program) in PROGRAMS {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, move || together_or_not_at_all(program)).unwrap();
        }
    });
}

fn together_or_not_at_all(program: fn() -> Command) {
    let (db, [mut session]) = Db::connected();
    let order = |texts: &[&str]| {
        let mut program = program();
        let _gate = Gate::if_wanted(&mut program);
        let output = program.arg("ann").args(texts).env("PGDATABASE", db.name()).output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (worked, ids, errors) = order(&["one", "two"]);
    assert!(worked, "{errors}");
    assert_eq!(ids, "order 1 part 0\norder 1 part 1\norder 1\n");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM orders"), 1);

    // The business logic refuses: the tasks go with the row.
    let (worked, _, errors) = order(&[]);
    assert!(!worked && errors.contains("an order without texts"), "{errors}");
    // The queue refuses: the row goes with the tasks.
    session.run("SELECT taskq.insert_task('order 3 part 0', 'checksum', '{\"text\": \"taken\"}')");
    let (worked, _, errors) = order(&["three"]);
    assert!(!worked && errors.contains("order 3 part 0"), "{errors}");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM orders"), 1);
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.tasks"), 4);

    let _worker = Worker::start(&db, Client::Ruby, "5");
    until("the order is done", || (session.state("order 1") == "completed").then_some(()));
}
