//! `return_task` and `return_tasks`: what SQL passes. The work is in [`crate::returns`].

use std::time::Duration;

use pgrx::datum::{AnyElement, Interval, Uuid};
use pgrx::prelude::*;

use super::args::pairs;
use crate::clock;
use crate::error::{NO_SUCH_TASK, Refusal, Result, TOO_LARGE, required};
use crate::flow::workgroups::{self, Delayed};
use crate::input::{self, ReturnSpec, Said, check_interval};
use crate::pg::clock::length;
use crate::pg::json::JsonText;
use crate::pg::rows::Rows;
use crate::pg::throw::notice;
use crate::returns::{Entry, Given, Return, return_all, tokens};
use crate::rights::{self, Doing};
use crate::token::Token;
use crate::verbs::insert::json;

/// `taskq.return_task(task_id, token, status_code, status, result, retry_after, children, …, depends_on, wait_at_most) ->
/// taskq.status_code`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_return_task(
    task_id: Option<String>,
    token: Option<Uuid>,
    status_code: Option<&str>,
    status: Option<String>,
    result: Option<AnyElement>,
    retry_after: Option<Interval>,
    children: Option<AnyElement>,
    children_block: Option<bool>,
    delay_children: Option<Interval>,
    delay_workgroup: Option<Interval>,
    count_try: Option<bool>,
    depends_on: Option<AnyElement>,
    wait_at_most: Option<Interval>,
) -> String {
    rights::for_caller(|| {
        let task_id = required("task_id", task_id)?;
        let token = required("token", token)?;
        check_delay(delay_workgroup)?;
        let code = required("status_code", status_code)?;
        let result = result.and_then(JsonText::from_argument);
        let length = result.as_ref().map_or(0, |result| result.0.len());
        let idle = Idle::of(code, result.is_some(), retry_after.is_some());
        let children = children.and_then(JsonText::from_argument);
        let depends_on = depends_on.and_then(JsonText::from_argument);
        let said = Said {
            status,
            result,
            retry_after,
            children: children.map(|text| input::parse_children(&text.0)).transpose()?,
            children_block: children_block.unwrap_or(false),
            delay_children,
            uncounted: !count_try.unwrap_or(true),
            depends_on: depends_on.map(|text| input::parse_awaited(&text.0)).transpose()?,
            wait_at_most,
        };
        let ending = Return::parse(code, said)?;
        match return_all(vec![(Some(task_id.clone()), Some(token), ending)])?.pop() {
            Some(Given { code: Ok(code), .. }) => {
                if let (Some(delay), Some(token)) = (delay_workgroup, Token::from_uuid(&token)) {
                    let delayed = Delayed { task_no: token.task_no, id: &task_id, delay };
                    workgroups::delay_of(&[delayed], clock::now())?;
                }
                idle.tell();
                Ok(code.to_owned())
            }
            Some(Given { code: Err(NO_SUCH_TASK), .. }) => Err(Refusal::no_such_task(&task_id)),
            Some(Given { code: Err(TOO_LARGE), .. }) => Err(Refusal::result_too_large(&task_id, length)),
            _ => Err(tokens::refusal(&task_id, &token)),
        }
    })
}

/// What became of each return: id, status code, SQLSTATE.
type Outcomes = Rows<(Option<String>, Option<&'static str>, Option<&'static str>)>;

/// `taskq.return_tasks(task_ids, tokens, status_code, status, result, retry_after, delay_workgroup,
/// count_try) -> TABLE (…)`
#[pg_extern(sql = "")]
#[allow(clippy::too_many_arguments)]
fn taskq_return_tasks(
    task_ids: Option<Vec<Option<String>>>,
    tokens: Option<Vec<Option<Uuid>>>,
    status_code: Option<&str>,
    status: Option<String>,
    result: Option<AnyElement>,
    retry_after: Option<Interval>,
    delay_workgroup: Option<Interval>,
    count_try: Option<bool>,
) -> Outcomes {
    outcomes(rights::for_caller(|| {
        let pairs = pairs(required("task_ids", task_ids)?, required("tokens", tokens)?)?;
        let code = required("status_code", status_code)?;
        let result = result.and_then(JsonText::from_argument);
        let idle = Idle::of(code, result.is_some(), retry_after.is_some());
        let uncounted = !count_try.unwrap_or(true);
        let said = Said { status, result, retry_after, uncounted, ..Said::default() };
        let ending = Return::parse(code, said)?;
        check_delay(delay_workgroup)?;
        let delays = pairs.iter().map(|(_, token)| (*token, delay_workgroup)).collect();
        let returns = pairs.into_iter().map(|(id, token)| (id, token, ending.clone())).collect();
        Returning { returns, delays, idle }.carry_out()
    }))
}

/// `taskq.return_tasks(returns jsonb) -> TABLE (…)`
#[pg_extern(sql = "")]
fn taskq_return_tasks_json(returns: Option<AnyElement>) -> Outcomes {
    outcomes(rights::for_caller(|| Returning::parse(&json("returns", returns)?)?.carry_out()))
}

/// What a call returns, read and checked.
pub(super) struct Returning {
    returns: Vec<Entry>,
    /// For each of them its token, and for how long its workgroup is held back; no entries where none can be given.
    delays: Vec<(Option<Uuid>, Option<Interval>)>,
    idle: Idle,
}

impl Returning {
    /// From a JSON array of returns.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let specs = input::parse_returns(text)?;
        specs.iter().try_for_each(|spec| check_delay(spec.delay_workgroup))?;
        let delays = specs.iter().map(|spec| (spec.token, spec.delay_workgroup)).collect();
        let mut idle = Idle::default();
        let returns = specs
            .into_iter()
            .enumerate()
            .map(|(i, spec): (usize, ReturnSpec)| {
                let code = spec.status_code.as_deref().unwrap_or("completed");
                idle |= Idle::of(code, spec.said.result.is_some(), spec.said.retry_after.is_some());
                let ending = Return::parse(code, spec.said)
                    .map_err(|refusal| refusal.of_return(i + 1, spec.task_id.as_deref()))?;
                Ok((spec.task_id, spec.token, ending))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Returning { returns, delays, idle })
    }

    /// All of them completed.
    pub(super) fn completed(pairs: Vec<(Option<String>, Option<Uuid>)>) -> Self {
        let returns = pairs.into_iter().map(|(id, token)| (id, token, Return::completed())).collect();
        Returning { returns, delays: Vec::new(), idle: Idle::default() }
    }

    /// Returns the tasks, and delays the workgroups of those for which that worked. Says so if arguments do
    /// nothing.
    pub(super) fn carry_out(self) -> Result<Vec<Given>> {
        let given = return_all(self.returns)?;
        delay_workgroups(&given, self.delays)?;
        self.idle.tell();
        Ok(given)
    }
}

/// Whether these arguments of a call do nothing beside the code that a task is returned with.
#[derive(Clone, Copy, Debug, Default)]
struct Idle {
    result: bool,
    retry_after: bool,
}

impl Idle {
    fn of(code: &str, result: bool, retry_after: bool) -> Self {
        let pending = code == "pending";
        Idle { result: result && pending, retry_after: retry_after && !pending }
    }

    /// Says so: what is left out in silence is missed much later.
    fn tell(self) {
        if self.result {
            notice(
                "the result of a task that is given back is not kept",
                "A result belongs to a task that is settled; this one is pending, for another try.",
                "What the next try is to know goes into the checkpoint of report_status.",
            );
        }
        if self.retry_after {
            notice(
                "argument \"retry_after\" does nothing for a task that is settled",
                "It says when a task that is returned as pending has its next try.",
                "Return the task as pending, or leave the argument out.",
            );
        }
    }
}

impl std::ops::BitOrAssign for Idle {
    fn bitor_assign(&mut self, other: Self) {
        self.result |= other.result;
        self.retry_after |= other.retry_after;
    }
}

/// For how long a worker whose part is narrowed may hold back a workgroup, which may have tasks of others.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Refuses a delay for the workgroup that is no delay, or too long for the caller.
fn check_delay(delay: Option<Interval>) -> Result<()> {
    match check_interval("delay_workgroup", delay)? {
        Some(delay) if length(delay) > A_DAY => rights::check_shared(
            Doing::Work,
            "hold back a workgroup for more than a day",
            "Give a day at most, or ask an operator for taskq.delay_workgroup().",
        ),
        _ => Ok(()),
    }
}

/// Holds back the workgroups of those of the tasks that were returned.
fn delay_workgroups(given: &[Given], delays: Vec<(Option<Uuid>, Option<Interval>)>) -> Result<()> {
    let delayed: Vec<Delayed> = given
        .iter()
        .zip(delays)
        .filter(|(given, _)| given.code.is_ok())
        .filter_map(|(given, (token, delay))| {
            let token = Token::from_uuid(&token?)?;
            Some(Delayed { task_no: token.task_no, id: given.task_id.as_deref()?, delay: delay? })
        })
        .collect();
    workgroups::delay_of(&delayed, clock::now())
}

fn outcomes(given: Vec<Given>) -> Outcomes {
    let row = |given: Given| match given.code {
        Ok(code) => (given.task_id, Some(code), None),
        Err(sqlstate) => (given.task_id, None, Some(sqlstate)),
    };
    Rows(given.into_iter().map(row).collect())
}
