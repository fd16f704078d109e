//! Settings of actions: `set_action`, `pause_action`, `resume_action`.

use std::collections::BTreeMap;

use pgrx::datum::{AnyElement, Interval};
use pgrx::prelude::*;

use crate::clock;
use crate::error::{Refusal, Result, or_throw, sentence, shortened};
use crate::flow::rates;
use crate::input::backoff::Backoff;
use crate::input::{check_interval, check_name};
use crate::number::TaskNo;
use crate::pg::json::JsonText;
use crate::pg::statement::Statement;
use crate::pg::throw::notice;
use crate::store::slot::{self, Limit, MOST_SLOTS, backfill};
use crate::store::{action_setting, actions};
use crate::wake;
use crate::words::{given_words, word};

/// The greatest rate: what is left of it is a floating-point number, which tells every one of these from the next.
const MOST_RATE: i32 = 1_000_000_000;

/// `taskq.set_action(action, max_tries, lease, backoff, max_concurrency, rate_limit, rate_period,
/// retention, notify, on_timeout, max_timeouts, clear, retention_aborted, fair, max_per_group, expires_in, max_run_time) -> void`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_set_action(
    action: Option<&str>,
    max_tries: Option<i32>,
    lease: Option<Interval>,
    backoff: Option<AnyElement>,
    max_concurrency: Option<i32>,
    rate_limit: Option<i32>,
    rate_period: Option<Interval>,
    retention: Option<Interval>,
    notify: Option<bool>,
    on_timeout: Option<&str>,
    max_timeouts: Option<i32>,
    clear: Option<Vec<Option<String>>>,
    retention_aborted: Option<Interval>,
    fair: Option<bool>,
    max_per_group: Option<i32>,
    expires_in: Option<Interval>,
    max_run_time: Option<Interval>,
) {
    or_throw((|| {
        let settings = Settings {
            name: check_name("action", action)?,
            max_tries,
            lease,
            backoff: backoff.and_then(JsonText::from_argument),
            max_concurrency,
            rate_limit,
            rate_period,
            retention,
            retention_aborted,
            notify,
            on_timeout,
            max_timeouts,
            fair,
            max_per_group,
            expires_in,
            max_run_time,
            clear: Vec::new(),
        };
        settings.check()?;
        let clear = given_words("clear", clear.unwrap_or_default(), &CLEARABLE)?;
        set_action(&Settings { clear, ..settings })
    })());
}

/// What can be cleared.
const CLEARABLE: [&str; 13] = [
    "max_tries",
    "lease",
    "backoff",
    "max_concurrency",
    "rate_limit",
    "retention",
    "retention_aborted",
    "max_timeouts",
    "on_timeout",
    "fair",
    "max_per_group",
    "expires_in",
    "max_run_time",
];

/// What is to be set; `None` keeps what was, unless it is cleared.
struct Settings<'a> {
    name: &'a str,
    max_tries: Option<i32>,
    lease: Option<Interval>,
    backoff: Option<JsonText>,
    max_concurrency: Option<i32>,
    rate_limit: Option<i32>,
    rate_period: Option<Interval>,
    retention: Option<Interval>,
    retention_aborted: Option<Interval>,
    notify: Option<bool>,
    on_timeout: Option<&'a str>,
    max_timeouts: Option<i32>,
    fair: Option<bool>,
    max_per_group: Option<i32>,
    expires_in: Option<Interval>,
    max_run_time: Option<Interval>,
    clear: Vec<&'static str>,
}

impl Settings<'_> {
    /// Checks what can be wrong with each alone.
    fn check(&self) -> Result<()> {
        for (argument, value, least, most) in [
            ("max_tries", self.max_tries, 1, i32::MAX),
            ("max_concurrency", self.max_concurrency, 0, MOST_SLOTS),
            ("rate_limit", self.rate_limit, 1, MOST_RATE),
            ("max_timeouts", self.max_timeouts, 1, i32::MAX),
            ("max_per_group", self.max_per_group, 1, MOST_SLOTS),
        ] {
            check_number(argument, value, least, most)?;
        }
        for (argument, value) in [
            ("lease", self.lease),
            ("retention", self.retention),
            ("retention_aborted", self.retention_aborted),
            ("rate_period", self.rate_period),
            ("expires_in", self.expires_in),
            ("max_run_time", self.max_run_time),
        ] {
            check_interval(argument, value)?;
        }
        if self.rate_period.is_some_and(|period| period.as_micros() == 0) {
            return Err(Refusal::out_of_range(
                "rate_period",
                "0",
                "Give the time over which the limit refills.",
            ));
        }
        if self.on_timeout.is_some() {
            word("on_timeout", self.on_timeout, &["retry", "abort"])?;
        }
        self.backoff.as_ref().map_or(Ok(()), check_backoff)
    }
}

fn check_number(argument: &str, value: Option<i32>, least: i32, most: i32) -> Result<()> {
    let Some(value) = value.filter(|value| !(least..=most).contains(value)) else { return Ok(()) };
    let hint = match most {
        i32::MAX => format!("Give an integer from {least} up."),
        _ => format!("Give an integer from {least} to {most}, or clear the limit to have none."),
    };
    Err(Refusal::out_of_range(argument, &value.to_string(), &hint))
}

fn check_backoff(json: &JsonText) -> Result<()> {
    Backoff::parse(&json.0).map(drop).map_err(|problem| {
        Refusal::argument(
            "argument \"backoff\" is malformed",
            &sentence(&problem.what),
            "Give {\"kind\": \"fixed\" or \"exponential\", \"initial\": an interval}, and \"max\" and \"jitter\" \
             where you want them.",
        )
    })
}

static LOCK_RATE: Statement<&str, (Option<i32>, Option<Interval>)> = Statement::new(
    c"SELECT s.rate_limit, s.rate_period FROM taskq.action_setting s WHERE s.name = $1 FOR UPDATE",
);
fn set_action(settings: &Settings) -> Result<()> {
    let name = settings.name;
    action_setting::ensure(name);
    let (limit, period): (Option<i32>, Option<Interval>) = LOCK_RATE.first(name).unwrap_or((None, None));
    if settings.rate_limit.or(limit).is_some() != settings.rate_period.or(period).is_some() {
        return Err(Refusal::argument(
            "arguments \"rate_limit\" and \"rate_period\" come together",
            "Only one of them is given, and the other is not set.",
            "A rate needs both: how many, and over what time.",
        ));
    }
    let (max_concurrency, rate_limit, max_per_group) = action_setting::set((
        name,
        settings.max_tries,
        settings.lease,
        settings.backoff.clone(),
        settings.max_concurrency,
        settings.rate_limit,
        settings.rate_period,
        settings.retention,
        settings.notify,
        settings.on_timeout,
        settings.max_timeouts,
        settings.clear.clone(),
        settings.retention_aborted,
        settings.fair,
        settings.max_per_group,
        settings.expires_in,
        settings.max_run_time,
    ));
    action_setting::note_stop(name, clock::now());
    if let (Some(_), Some(most)) = (settings.max_concurrency, max_concurrency) {
        fit_action(name, most);
    }
    if let (Some(_), Some(most)) = (settings.max_per_group, max_per_group) {
        fit_groups(name, most);
    }
    rates::fit(name, limit.zip(period), rate_limit);
    if settings.max_concurrency.is_some() || !settings.clear.is_empty() {
        backfill::drop_above(name, max_concurrency);
    }
    wake_all(name);
    Ok(())
}

/// Makes the slots that the limit lacks; performances that began without one get theirs.
fn fit_action(name: &str, most: i32) {
    let without_slot = backfill::without_slot_in_action(name, false);
    let held: Vec<TaskNo> = without_slot.into_iter().map(|(task_no, _)| task_no).collect();
    backfill::fit_action(name, most, &held);
}

/// Performances that began before there was a limit per group get the slots of it.
fn fit_groups(name: &str, most: i32) {
    slot::keep_from_making(&Limit::of_action(name));
    let mut groups: BTreeMap<String, Vec<TaskNo>> = BTreeMap::new();
    for (task_no, group) in backfill::without_slot_in_action(name, true) {
        groups.entry(group).or_default().push(task_no);
    }
    for (group, held) in groups {
        backfill::assign(&Limit::per_group(name, &group), most, &held);
    }
}

/// `taskq.pause_action(action) -> boolean`
#[pg_extern(sql = "")]
fn taskq_pause_action(action: Option<&str>) -> bool {
    or_throw((|| {
        let name = check_name("action", action)?;
        action_setting::ensure(name);
        if actions::numbers(&[name.to_owned()]).is_empty() {
            notice(
                &format!("no task of action \"{}\" was ever inserted", shortened(name)),
                "It is paused all the same: the first one that comes will wait.",
                "If that is a typing error, resume_action undoes it; taskq.actions shows the actions there are.",
            );
        }
        let paused = action_setting::set_paused(name, true);
        action_setting::note_stop(name, clock::now());
        Ok(paused)
    })())
}

/// `taskq.resume_action(action) -> boolean`
#[pg_extern(sql = "")]
fn taskq_resume_action(action: Option<&str>) -> bool {
    or_throw((|| {
        let name = check_name("action", action)?;
        if KNOWN.first(name) != Some(true) {
            return Err(Refusal::no_such("action setting", name));
        }
        let resumed = action_setting::set_paused(name, false);
        action_setting::note_stop(name, clock::now());
        wake_all(name);
        Ok(resumed)
    })())
}

static KNOWN: Statement<&str, bool> = Statement::new(
    c"SELECT EXISTS (SELECT FROM taskq.action_setting s WHERE s.name = $1)
          OR EXISTS (SELECT FROM taskq.action a WHERE a.name = $1 AND NOT a.forgotten)",
);

/// Has all calls that wait for tasks of an action look again: what holds these back may have changed.
fn wake_all(name: &str) {
    for action_no in actions::numbers(&[name.to_owned()]) {
        wake::ready_for_all(action_no);
    }
}
