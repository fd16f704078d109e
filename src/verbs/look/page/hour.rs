//! The last hour: what has ended, and how long it had waited and run.

use super::chart::{self, MINUTES};
use super::table::key;
use crate::pg::statement::Statement;

/// Minutes ago, and how many completed, were skipped and aborted then.
static ENDS: Statement<(), (i32, f64, f64, f64)> = Statement::planned_each_time(
    c"SELECT x.ago, COALESCE(pg_catalog.sum(x.number) FILTER (WHERE x.code = 'c'), 0)::double precision,
             COALESCE(pg_catalog.sum(x.number) FILTER (WHERE x.code = 'a' AND x.cause = 'k'), 0)::double precision,
             COALESCE(pg_catalog.sum(x.number) FILTER (WHERE x.code = 'a' AND x.cause <> 'k'), 0)::double precision
        FROM (SELECT pg_catalog.floor(EXTRACT(epoch FROM taskq.clock() - e.at) / 60)::integer AS ago, e.code, e.cause, e.number
                FROM taskq._ends('1 hour') AS e) AS x
       WHERE x.ago BETWEEN 0 AND 59 GROUP BY x.ago",
);

/// Minutes ago, and median and 99th percentile of waiting and running, in seconds, of some that settled then.
static TIMES: Statement<(), (i32, f64, f64, f64, f64)> = Statement::planned_each_time(
    c"SELECT m.ago, x.waiting[1], x.waiting[2], x.running[1], x.running[2] FROM pg_catalog.generate_series(0, 59) AS m(ago)
       CROSS JOIN LATERAL taskq._times(taskq.clock() - (m.ago + 1) * interval '1 minute', interval '1 minute') AS x
       WHERE x.waiting IS NOT NULL",
);

/// The charts of the last hour: what has ended, and how long tasks waited and ran.
pub(super) fn charts() -> String {
    let mut ends = [[0.0; chart::ENDS.len()]; MINUTES];
    for (ago, completed, skipped, aborted) in ENDS.query(()) {
        if let Some(minute) = minute(ago) {
            ends[minute] = [completed, skipped, aborted].map(|number| number.max(0.0));
        }
    }
    let (mut waiting, mut running) = ([None; MINUTES], [None; MINUTES]);
    for (ago, waiting_p50, waiting_p99, running_p50, running_p99) in TIMES.query(()) {
        if let Some(minute) = minute(ago) {
            waiting[minute] = Some((waiting_p50.max(0.0), waiting_p99.max(0.0)));
            running[minute] = Some((running_p50.max(0.0), running_p99.max(0.0)));
        }
    }
    let percentiles = key(&[("progress", "median"), ("ready", "99th percentile")]);
    format!(
        "<div class=\"charts\" id=\"hour\">\
         <section class=\"card\"><h2>Ended per minute<span class=\"aside\">{}</span></h2>{}</section>\
         <section class=\"card\"><h2>Waiting<span class=\"aside\">{percentiles}</span></h2>{}</section>\
         <section class=\"card\"><h2>Running<span class=\"aside\">{percentiles}</span></h2>{}</section></div>",
        key(&chart::ENDS.map(|end| (end, end))),
        chart::ends(&ends),
        chart::times("time from insertion to grant", &waiting),
        chart::times("time from grant to end", &running),
    )
}

/// The place of a minute in a chart.
fn minute(ago: i32) -> Option<usize> {
    MINUTES.checked_sub(1 + usize::try_from(ago).ok()?)
}
