//! `health` tells of tries that end by their deadlines.

use taskq_tests::Db;

use super::health::{problems, the_problem};

#[test]
fn from_three_in_an_hour_on_with_the_task_that_did_so_most_often() {
    let (_db, [mut session]) = Db::connected();
    session.run("SET taskq.backoff = ''; SET taskq.now = '2090-01-01 00:00Z'");
    session.run("SELECT taskq.insert_task('good', 'x', lease => '1 minute'), taskq.insert_task('killer', 'x', lease => '1 minute')");
    let mut miss = |id: &str, minute: i32| {
        session.run(&format!("SET taskq.now = '2090-01-01 00:{minute:02}Z'"));
        session.run(&format!("SELECT taskq.update_tasks('{{{id}}}', priority => {})", minute + 1));
        assert_eq!(session.own_one("x").task_id, id);
        session.run(&format!("SET taskq.now = '2090-01-01 00:{:02}Z'; SELECT taskq.maintain()", minute + 1));
        // Pending anew, so that its priority can be set; nothing else is said.
        let found = problems(&mut session, "timeouts");
        session.run(&format!("SELECT taskq.release_tasks('{{{id}}}')"));
        found
    };
    assert!(miss("good", 0).is_empty());
    assert!(miss("killer", 2).is_empty());
    assert_eq!(miss("killer", 4).len(), 1);
    for minute in 5..11 {
        miss("killer", 2 * minute);
    }
    assert_eq!(miss("killer", 22).len(), 1);
    session.run("SET taskq.now = '2090-01-01 00:24Z'");
    let problem = the_problem(&mut session, "timeouts", "warning", "x");
    assert!(problem.contains("10 tries") && problem.contains("9 of them of task \"killer\""), "{problem}");
    session.run("SET taskq.now = '2090-01-01 01:02Z'");
    the_problem(&mut session, "timeouts", "notice", "x");
    session.run("SET taskq.now = '2090-01-01 02:00Z'");
    assert!(problems(&mut session, "timeouts").is_empty());
}
