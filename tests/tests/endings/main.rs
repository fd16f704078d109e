//! `taskq.endings`: each end once, in an order to which nothing is added before a cursor that was given out.

mod order;
mod rights;

use taskq_tests::Session;

/// The next ends behind a cursor; NULL for the beginning: cursor, task, code and cause.
fn next(session: &mut Session, after: Option<&str>, more: &str) -> Vec<(String, String)> {
    let after = after.map_or("NULL".to_owned(), |cursor| format!("'{cursor}'"));
    let query = format!(
        "SELECT cursor || '|' || concat_ws(' ', task_id, status_code, cause) FROM taskq.endings({after}{more})"
    );
    let rows: Vec<String> = session.all(&query);
    rows.iter().map(|row| row.split_once('|').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap()).collect()
}

/// What has ended behind a cursor, without cursors.
fn ended(session: &mut Session, after: Option<&str>) -> Vec<String> {
    next(session, after, "").into_iter().map(|(_, what)| what).collect()
}
