//! `metrics`: the numbers of the moment as OpenMetrics text; `metrics_rows`: the same as rows.
//!
//! One statement counts, with one snapshot: each table of what is alive is read, from end to end as long as it is
//! small and else in part (`sql/estimates.sql`); what has settled is summed up in tallies, except the latest. Two
//! small ones besides ask what is set for the actions, and how old the oldest ready tasks are.
//! The exposition format of the text (escaping, suffixes, `# EOF`) is left to `prometheus-client`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use pgrx::prelude::*;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::clock;
use crate::error::{Result, or_throw, required};
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::latch::TAG_CLASS;
use crate::pg::rows::Rows;
use crate::pg::statement::{Statement, record};
use crate::state::Cause;
use crate::wake;

/// `taskq.metrics(kept) -> text`
#[pg_extern(sql = "")]
fn taskq_metrics(kept: Option<bool>) -> String {
    or_throw(metrics(kept))
}

/// `taskq.metrics_rows(kept) -> TABLE (name text, labels jsonb, value double precision)`
#[pg_extern(sql = "")]
fn taskq_metrics_rows(kept: Option<bool>) -> Rows<(String, JsonText, f64)> {
    let metrics = or_throw(measure(kept));
    Rows(metrics.families.iter().flat_map(Family::rows).collect())
}

record! {
    /// A row of [`COUNT`].
    struct Count {
        kind: String,
        action_no: Option<i32>,
        what: String,
        number: i64,
        first: Option<TaskNo>,
    }
}

/// What is counted: the kind of number, the number of the action if it is one of each (of `waiters` the kind of channel), a text, the
/// number, and of what is alive the first task that it is about, where there is one. `task` is not read as a whole.
/// Planned anew at each call: what groups best is another plan as the tables grow.
static COUNT: Statement<(Time, bool, i32), Count> = Statement::planned_each_time(
    c"WITH live AS MATERIALIZED (SELECT * FROM taskq._about()),
      ended AS MATERIALIZED (SELECT * FROM taskq._ended() WHERE $2)
      SELECT 'live', l.action_no, l.state, l.number, l.first FROM live AS l
      UNION ALL
      SELECT 'overdue', l.action_no, '', l.overdue, NULL FROM live AS l WHERE l.overdue > 0
      UNION ALL
      SELECT 'kept', e.action_no, pg_catalog.concat(e.code, e.cause), e.number, NULL
        FROM ended AS e WHERE e.number > 0
      UNION ALL
      SELECT 'ended', e.action_no, pg_catalog.concat(e.code, e.cause), e.ever, NULL FROM ended AS e
      UNION ALL
      SELECT 'tries', NULL, a.outcome, a.number, NULL FROM taskq._about_tries() AS a WHERE $2
      UNION ALL
      SELECT 'expired', NULL, '', pg_catalog.count(*), NULL
        FROM (SELECT FROM taskq.settled AS s WHERE s.expires_at <= $1 ORDER BY s.expires_at LIMIT 10000) AS s
      UNION ALL
      SELECT 'signals', NULL, '', pg_catalog.count(*), NULL FROM taskq.countdown AS g
      UNION ALL
      SELECT 'schedules', NULL, x.what, x.number, NULL
        FROM (SELECT pg_catalog.count(*) AS all, pg_catalog.count(*) FILTER (WHERE s.next_at <= $1) AS due,
                     pg_catalog.count(s.problem) AS failing
                FROM taskq.schedule AS s) AS c
       CROSS JOIN LATERAL (VALUES ('all', c.all), ('due', c.due), ('failing', c.failing)) AS x(what, number)
      UNION ALL
      SELECT 'paused groups', NULL, '', pg_catalog.count(*), NULL FROM taskq.task_group AS g WHERE g.paused
      UNION ALL
      SELECT 'actors', NULL, '', taskq._actors(), NULL
      UNION ALL
      -- Those who sleep hold a lock that says what for.
      SELECT 'waiters', (l.classid::bigint >> 24)::integer, '', pg_catalog.count(DISTINCT l.pid), NULL
        FROM pg_catalog.pg_locks AS l
       WHERE l.locktype = 'advisory' AND l.objsubid = $3
         AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database())
       GROUP BY 2
      UNION ALL
      SELECT 'inserts', NULL, c.relname::text, pg_catalog.pg_stat_get_tuples_inserted(c.oid), NULL
        FROM pg_catalog.pg_class AS c
       WHERE c.relnamespace = 'taskq'::pg_catalog.regnamespace AND c.relname IN ('task', 'settled', 'attempt')",
);
static INSERTED: Statement<&[TaskNo], (TaskNo, Time)> =
    Statement::new(c"SELECT t.task_no, t.inserted_at FROM taskq.task t WHERE t.task_no = ANY ($1)");
static ACTIONS: Statement<(), (String, i32, bool, Option<i32>, i64)> = Statement::new(
    c"SELECT a.name, a.action_no, COALESCE(s.paused, false), s.max_concurrency,
             (SELECT pg_catalog.count(*) FROM taskq.slot l
               WHERE l.group_id = '' AND l.name = a.name AND l.task_no IS NOT NULL)
        FROM taskq.action a LEFT JOIN taskq.action_setting s ON s.name = a.name
       WHERE NOT a.forgotten",
);

fn metrics(kept: Option<bool>) -> Result<String> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(measure(kept)?));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = text::encode(&mut text, &registry);
    Ok(text)
}

/// What all names begin with, and a low line.
const PREFIX: &str = "taskq";

fn measure(kept: Option<bool>) -> Result<Metrics> {
    let kept = required("kept", kept)?;
    let now = clock::now();
    let counts = COUNT.query((now, kept, i32::from(TAG_CLASS)));
    let mut metrics = Metrics::default();
    let actions = metrics.actions();
    metrics.tasks(&counts, &actions, kept, now);
    metrics.rest(&counts, kept);
    Ok(metrics)
}

/// Names of actions by number.
type Names = BTreeMap<i32, String>;

impl Metrics {
    fn actions(&mut self) -> Names {
        let mut names = Names::new();
        let mut seen = BTreeSet::new();
        for (name, action_no, paused, limit, held) in ACTIONS.query(()) {
            if seen.insert(name.clone()) {
                self.gauge("paused_actions", "Whether the action is paused.")
                    .add([("action", &name)], f64::from(u8::from(paused)));
                if let Some(limit) = limit {
                    self.gauge("concurrency_limit", "Performances that max_concurrency allows.")
                        .add([("action", &name)], f64::from(limit));
                    self.gauge("concurrency_slots_held", "Performances that count against max_concurrency.")
                        .add([("action", &name)], held as f64);
                }
            }
            names.insert(action_no, name);
        }
        names
    }

    /// Per action. A name may have several numbers; their counts add up.
    fn tasks(&mut self, counts: &[Count], actions: &Names, kept: bool, now: Time) {
        const STATES: [&str; 7] =
            ["blocked", "scheduled", "ready", "in-progress", "completed", "aborted", "skipped"];
        let mut oldest: BTreeMap<&str, TaskNo> = BTreeMap::new();
        for name in actions.values() {
            for state in &STATES[..if kept { STATES.len() } else { 4 }] {
                self.gauge("tasks", "Tasks in the queue, settled ones that are kept included, by state.")
                    .add([("action", name), ("state", state)], 0.0);
            }
            self.gauge("overdue_tasks", "Tasks in progress whose deadline has passed.")
                .add([("action", name)], 0.0);
        }
        for count in
            counts.iter().filter(|c| matches!(c.kind.as_str(), "live" | "overdue" | "kept" | "ended"))
        {
            let Some(name) = count.action_no.and_then(|n| actions.get(&n)) else { continue };
            let number = count.number as f64;
            if count.kind == "overdue" {
                self.gauge("overdue_tasks", "").add([("action", name)], number);
                continue;
            }
            if count.kind == "ended" {
                self.ended(name, &count.what, number);
                continue;
            }
            let state = match (count.kind.as_str(), count.what.as_str()) {
                ("kept", what) => ended(what),
                (_, what) => what,
            };
            self.gauge("tasks", "").add([("action", name), ("state", state)], number);
            if state == "ready"
                && let Some(first) = count.first
            {
                let least = oldest.entry(name).or_insert(first);
                *least = first.min(*least);
            }
        }
        let task_nos: Vec<TaskNo> = oldest.values().copied().collect();
        let inserted: BTreeMap<TaskNo, Time> = INSERTED.query(task_nos).into_iter().collect();
        for (name, task_no) in oldest {
            if let Some(at) = inserted.get(&task_no) {
                self.family(
                    "oldest_ready_age",
                    "Time since the insertion of the oldest ready task.",
                    Kind::Seconds,
                )
                .add([("action", name)], at.until(now).as_secs_f64());
            }
        }
    }

    /// Tasks of an action that have ended in one way, by the letters of code and cause.
    fn ended(&mut self, action: &str, letters: &str, number: f64) {
        let Some(cause) = letters.bytes().last().and_then(Cause::from_stored) else { return };
        self.family(
            "ended_tasks",
            "Tasks that have settled, kept or not, by outcome and cause.",
            Kind::Counter,
        )
        .add([("action", action), ("outcome", ended(letters)), ("cause", cause.name())], number);
    }

    /// Of what is not shown per action: what is shown although there may be none of it. `kept`: with the settled tasks that are kept.
    fn zeros(&mut self, kept: bool) {
        for channel in ["work", "end_of_task"] {
            self.gauge("waiters", "Sessions that sleep until there is work, or until a task has ended.")
                .add([("for", channel)], 0.0);
        }
        if kept {
            for cause in Cause::visible() {
                self.gauge("settled_tasks", "Settled tasks that are kept, by what ended them.")
                    .add([("cause", cause.name())], 0.0);
            }
        }
    }

    /// What is not shown per action.
    fn rest(&mut self, counts: &[Count], kept: bool) {
        self.zeros(kept);
        for count in counts {
            let number = count.number as f64;
            match count.kind.as_str() {
                "kept" => {
                    if let Some(cause) = count.what.bytes().last().and_then(Cause::from_stored) {
                        self.gauge("settled_tasks", "").add([("cause", cause.name())], number);
                    }
                }
                "tries" => self
                    .gauge(
                        "earlier_tries",
                        "Tries before the last one, of tasks that are in the queue, by how they ended.",
                    )
                    .add([("outcome", count.what.as_str())], number),
                "expired" => self
                    .gauge(
                        "expired_tasks",
                        "Settled tasks whose retention is over and that are still there, 10000 at most.",
                    )
                    .add([], number),
                "signals" => {
                    self.gauge("deferred_signals", "Signals that wait to be counted.").add([], number)
                }
                "schedules" => {
                    let (name, help) = match count.what.as_str() {
                        "due" => ("due_schedules", "Schedules whose next run is due."),
                        "failing" => ("failing_schedules", "Schedules whose last run could not be inserted."),
                        _ => ("schedules", "Schedules."),
                    };
                    self.gauge(name, help).add([], number);
                }
                "paused groups" => self.gauge("paused_groups", "Groups that are paused.").add([], number),
                "actors" => self.gauge("actors", "Actors that hold tasks.").add([], number),
                "waiters" => {
                    let channel = match count.action_no.and_then(|kind| u8::try_from(kind).ok()) {
                        Some(wake::SETTLED) => "end_of_task",
                        // Every call that waits for work is registered here, whatever its actions are.
                        Some(wake::TIMER) => "work",
                        _ => continue,
                    };
                    self.gauge("waiters", "").add([("for", channel)], number);
                }
                "inserts" => {
                    let (name, help) = match count.what.as_str() {
                        "task" => ("inserted_tasks", "Tasks inserted, by the server's statistics."),
                        "settled" => ("endings", "Tasks settled, by the server's statistics."),
                        _ => (
                            "unsettled_tries",
                            "Tries that ended without settling their task, by the server's statistics.",
                        ),
                    };
                    self.family(name, help, Kind::Counter).add([], number);
                }
                _ => {}
            }
        }
    }
}

/// How tasks have ended, by the letters of code and cause: those that were skipped are none of the failures.
fn ended(letters: &str) -> &'static str {
    match letters.as_bytes() {
        [b'c', ..] => "completed",
        [_, cause] if Cause::from_stored(*cause) == Some(Cause::Skipped) => "skipped",
        _ => "aborted",
    }
}

/// Everything there is to tell, in the order in which it was first spoken of.
#[derive(Debug, Default)]
struct Metrics {
    families: Vec<Family>,
}

/// Numbers of one kind.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: BTreeMap<Vec<(&'static str, String)>, f64>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A number that only grows, until its source is reset.
    Counter,
    /// A number of the moment.
    Gauge,
    /// A time.
    Seconds,
}

impl Metrics {
    fn gauge(&mut self, name: &'static str, help: &'static str) -> &mut Family {
        self.family(name, help, Kind::Gauge)
    }

    fn family(&mut self, name: &'static str, help: &'static str, kind: Kind) -> &mut Family {
        let at = self.families.iter().position(|f| f.name == name).unwrap_or_else(|| {
            self.families.push(Family { name, help, kind, samples: BTreeMap::new() });
            self.families.len() - 1
        });
        &mut self.families[at]
    }
}

impl Family {
    fn add<const N: usize>(&mut self, labels: [(&'static str, &str); N], number: f64) {
        let labels = labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect();
        *self.samples.entry(labels).or_insert(0.0) += number;
    }

    /// Its samples as rows, by the names that they have in the text.
    fn rows(&self) -> impl Iterator<Item = (String, JsonText, f64)> {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Seconds => "_seconds",
        };
        let name = format!("{PREFIX}_{}{suffix}", self.name);
        self.samples.iter().map(move |(labels, number)| {
            let labels: serde_json::Map<String, serde_json::Value> =
                labels.iter().map(|(label, value)| ((*label).to_owned(), value.as_str().into())).collect();
            (name.clone(), JsonText(serde_json::Value::Object(labels).to_string()), *number)
        })
    }

    fn encode(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        match self.kind {
            Kind::Counter => self.encode_as(encoder, None, |number| ConstCounter::new(number as u64)),
            Kind::Gauge => self.encode_as(encoder, None, |number| ConstGauge::new(number as i64)),
            Kind::Seconds => self.encode_as(encoder, Some(Unit::Seconds), ConstGauge::new),
        }
    }

    fn encode_as<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder,
        unit: Option<Unit>,
        metric: impl Fn(f64) -> M,
    ) -> fmt::Result {
        let kind = metric(0.0).metric_type();
        let mut encoder = encoder.encode_descriptor(self.name, self.help, unit.as_ref(), kind)?;
        for (labels, number) in &self.samples {
            let metric = metric(*number);
            if labels.is_empty() {
                // The only sample of its family.
                return metric.encode(encoder);
            }
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.families.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}
