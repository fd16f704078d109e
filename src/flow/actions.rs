//! What other modules need of the settings of actions, such as to claim and to end tries.

use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use super::rates;
use crate::guc;
use crate::input::backoff::Backoff;
use crate::number::TaskNo;
use crate::pg::clock::Time;
use crate::pg::json::JsonText;
use crate::pg::session::{check_for_interrupts, random_62_bits};
use crate::pg::statement::Statement;
use crate::pg::table::{Key, look};
use crate::store::action_setting::{Named, Setting};
use crate::store::{known_actions, known_lanes, run, slot};

/// An action number with what is set for its name, to which it dereferences.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    /// One of the numbers that stand for the name.
    pub(crate) action_no: i32,
    /// The name, and what is set for it.
    pub(crate) named: Rc<Named>,
    /// There may be entries in lanes, as of when the action was looked up.
    laned: bool,
}

impl Deref for Action {
    type Target = Setting;

    fn deref(&self) -> &Setting {
        &self.named.setting
    }
}

impl Action {
    /// Whether neither a pause nor `max_concurrency` nor the rate keeps the next task of it from being granted.
    pub(crate) fn lets_one_go(&self, now: Time) -> bool {
        self.lets_one_go_in_time()
            && self.rate.is_none_or(|(limit, period)| {
                rates::next_grant(&self.named.name, limit, period, now).is_none()
            })
    }

    /// Whether time alone lets the next task of it go: now, or as its rate says. (A pause and full slots end with
    /// a commit that wakes.)
    pub(crate) fn lets_one_go_in_time(&self) -> bool {
        !self.paused && self.max_concurrency.is_none_or(|limit| slot::any_free(&self.named.name, limit))
    }

    /// Whether a claim has to choose before it takes: there are limits to ask, or lanes to look into.
    pub(crate) fn is_chosen_from(&self) -> bool {
        self.max_concurrency.is_some() || self.rate.is_some() || self.has_lanes()
    }

    /// Whether entries may be in lanes.
    pub(crate) fn has_lanes(&self) -> bool {
        self.laned || self.gives_lanes()
    }
}

fn of_names(names: &[String]) -> Vec<Rc<Named>> {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    known_actions::named(names.into_iter())
}

/// All numbers that stand for any of the names, in ascending order.
pub(crate) fn numbers(names: &[String]) -> Vec<i32> {
    let mut numbers: Vec<i32> =
        of_names(names).iter().flat_map(|named| named.action_nos.iter().copied()).collect();
    numbers.sort_unstable();
    numbers
}

/// All numbers that stand for any of the names, with their settings, in ascending order.
pub(crate) fn for_claim(names: &[String]) -> Vec<Action> {
    let names = of_names(names);
    let numbers = names.iter().flat_map(|named| named.action_nos.iter().map(move |n| (named, *n)));
    let mut actions: Vec<Action> = look(|look| {
        look.scan(&run::IN_LANES, |lanes| {
            let bare = lanes.is_bare();
            let of = |(named, action_no): (&Rc<Named>, i32)| {
                check_for_interrupts();
                let mut entered = || {
                    let from = known_lanes::rest(action_no);
                    lanes.start(&[Key::eq(1, action_no), Key::at_least(4, from)]);
                    lanes.next().is_some()
                };
                // A look last: the lanes that are excepted may be long, and it would pass all of them.
                let laned =
                    named.setting.gives_lanes() || known_lanes::has_excepted(action_no) || !bare && entered();
                Action { action_no, named: Rc::clone(named), laned }
            };
            numbers.map(of).collect()
        })
    });
    actions.sort_unstable_by_key(|action| action.action_no);
    actions
}

/// When the first of the rates that hold back one of these actions now lets a task go.
pub(crate) fn next_grant(settings: &[Action], now: Time) -> Option<Time> {
    settings
        .iter()
        .filter(|a| !a.paused)
        .filter_map(|a| {
            let (limit, period) = a.rate?;
            rates::next_grant(&a.named.name, limit, period, now)
        })
        .min()
}

static BACKOFFS: Statement<&[TaskNo], (TaskNo, JsonText)> = Statement::new(
    c"SELECT t.task_no, COALESCE(t.backoff, s.backoff)
        FROM taskq.task t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
        LEFT JOIN LATERAL (SELECT s.backoff FROM taskq.action_setting s
                            WHERE s.name = a.name OFFSET 0) AS s ON true
       WHERE t.task_no = ANY ($1) AND (t.backoff IS NOT NULL OR s.backoff IS NOT NULL)",
);

/// How long each of the tasks, with its number of tries, waits for its next try: as it says itself,
/// else as its action does, else as the setting does.
pub(crate) fn backoffs(tries: &[(TaskNo, i32)]) -> HashMap<TaskNo, Duration> {
    if tries.is_empty() {
        return HashMap::new();
    }
    let task_nos: Vec<TaskNo> = tries.iter().map(|(n, _)| *n).collect();
    let own: HashMap<TaskNo, Option<Backoff>> = BACKOFFS
        .map(task_nos, |(task_no, said)| (task_no, Backoff::parse(&said.0).ok()))
        .into_iter()
        .collect();
    let default = guc::backoff();
    tries
        .iter()
        .filter_map(|(n, tries)| {
            let backoff = own.get(n).copied().unwrap_or(default)?;
            let chance = random_62_bits() as f64 / (1_i64 << 62) as f64;
            Some((*n, backoff.delay(*tries, chance)))
        })
        .collect()
}

/// What limits the tries of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TryLimits {
    /// How many tries the task may have; `None`: any number.
    pub(crate) max_tries: Option<i32>,
    /// After so many deadlines that have passed the task aborts; `None`: only by its tries.
    pub(crate) max_timeouts: Option<i32>,
}

static TRY_LIMITS: Statement<&[TaskNo], (TaskNo, Option<i32>, Option<i32>)> = Statement::new(
    c"SELECT t.task_no, COALESCE(t.max_tries, s.max_tries),
             CASE s.on_timeout WHEN 'abort' THEN 1 ELSE s.max_timeouts END
        FROM taskq.task t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
        LEFT JOIN LATERAL (SELECT s.name, s.max_tries, s.on_timeout, s.max_timeouts FROM taskq.action_setting s
                            WHERE s.name = a.name OFFSET 0) AS s ON true
       WHERE t.task_no = ANY ($1) AND (t.max_tries IS NOT NULL OR s.name IS NOT NULL)",
);

/// What limits the tries of each of these tasks: `max_tries` as it says itself, else its action, else the setting; deadlines as its
/// action says.
pub(crate) fn try_limits(task_nos: &[TaskNo]) -> HashMap<TaskNo, TryLimits> {
    let max_tries = guc::max_tries();
    let mut limits: HashMap<TaskNo, TryLimits> =
        task_nos.iter().map(|n| (*n, TryLimits { max_tries, max_timeouts: None })).collect();
    limits.extend(TRY_LIMITS.map(task_nos, |(task_no, own, max_timeouts)| {
        (task_no, TryLimits { max_tries: own.or(max_tries), max_timeouts })
    }));
    limits
}
