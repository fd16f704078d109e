//! The end of performances, by whichever verb.
//!
//! **A stale token is never trusted.** The row of a performance is removed in the version that has the token's nonce, or
//! not at all: see [`run::remove`](crate::store::run::remove).

mod children;
mod give_back;
mod revoke;
mod settling;
mod suspend;
pub(crate) mod tokens;
pub(crate) mod tries;

pub(crate) use children::Children;
pub(crate) use revoke::revoke;
use suspend::Suspension;

use std::collections::{HashMap, HashSet};

use pgrx::datum::{Interval, Uuid};

use tokens::{is_foreign, valid};
use tries::TryEnd;

use crate::clock;
use crate::error::{NO_SUCH_TASK, Refusal, Result, STALE_TOKEN};
use crate::insert::unique;
use crate::number::TaskNo;
use crate::pg::json::JsonText;
use crate::rights::{self, Doing};
use crate::spec::{AwaitedSpec, TaskSpec, check_interval, near};
use crate::state::Outcome;
use crate::store::guard::guard;
use crate::store::live::{self, Live, LockStrength, Place};
use crate::store::order::restartable;
use crate::store::{lease, numbers, run, slot};
use crate::token::Token;
use crate::wake;
use crate::words::word;

/// A task, the token it is returned with, and how.
pub(crate) type Entry = (Option<String>, Option<Uuid>, Return);

/// What became of an entry: its place in the call, and the code.
type Code = (usize, &'static str);

/// How a performance ends.
#[derive(Clone, Debug)]
pub(crate) enum Return {
    /// For good.
    Settle(End),
    /// For good, with tasks that are born of it, or a delay for those that wait for it.
    SettleWith(End, Box<Children>),
    /// For another try.
    GiveBack(GivenBack),
    /// Until other tasks have ended.
    Suspend(Box<Suspension>),
}

/// What a return says beside how it ends; what is left out is `None`.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) status: Option<String>,
    pub(crate) result: Option<JsonText>,
    pub(crate) retry_after: Option<Interval>,
    /// As they were given: none at all is not the same as no child.
    pub(crate) children: Option<Vec<TaskSpec>>,
    pub(crate) children_block: bool,
    pub(crate) delay_children: Option<Interval>,
    /// The try does not count.
    pub(crate) uncounted: bool,
    pub(crate) depends_on: Option<Vec<AwaitedSpec>>,
    pub(crate) wait_at_most: Option<Interval>,
}

/// The end of a task that is returned.
#[derive(Clone, Debug)]
pub(crate) struct End {
    outcome: Outcome,
    status: Option<String>,
    result: Option<JsonText>,
}

/// What is said of a task that is given back.
#[derive(Clone, Debug)]
pub(crate) struct GivenBack {
    status: Option<String>,
    /// The next try is not before this is over; `None` for the back-off, if the try counts.
    retry_after: Option<Interval>,
    how: TryEnd,
}

/// A performance that is returned: one that the call names by an id and a token that belong together.
struct Returned<T> {
    /// Its place in the call.
    at: usize,
    token: Token,
    how: T,
}

/// What became of one return.
pub(crate) struct Given {
    pub(crate) task_id: Option<String>,
    pub(crate) code: std::result::Result<&'static str, &'static str>,
}

/// The codes that there are.
const STATUS_CODES: [&str; 4] = ["pending", "in-progress", "aborted", "completed"];

/// What to use instead of a code that there is not: other queues call theirs otherwise.
fn meant_by(code: &str) -> &'static str {
    let code = code.trim().to_lowercase();
    let is = |words: &[&str]| words.contains(&code.as_str());
    if is(&["done", "finished", "ok", "success", "succeeded", "successful"]) {
        "\"completed\" is probably meant."
    } else if is(&["error", "errored", "fail", "failed", "failure"]) {
        "Use \"aborted\" where the task has failed for good, \"pending\" to give it back for another try."
    } else if is(&["release", "released", "reschedule", "retry", "snooze"]) {
        "\"pending\" is probably meant."
    } else {
        "Use \"completed\", \"aborted\", or \"pending\" for another try."
    }
}

impl Return {
    /// Checks the arguments of a return against each other.
    pub(crate) fn parse(code: &str, said: Said) -> Result<Self> {
        check_interval("retry_after", said.retry_after)?;
        // What is probably meant is looked for in what has been refused only: it takes as long as all the rest.
        let code = word("status_code", Some(code), &STATUS_CODES).or_else(|refused| {
            let same = near(code, &STATUS_CODES);
            same.filter(|meant| *meant == "in-progress").ok_or_else(|| match same {
                Some(_) => refused,
                None => refused.with_hint(meant_by(code)),
            })
        });
        let outcome = match code? {
            "completed" => Outcome::Completed,
            "aborted" => Outcome::Aborted,
            "in-progress" => return Err(Refusal::no_end()),
            _ => return Return::pending(said),
        };
        if said.uncounted {
            return Err(Refusal::argument(
                "count_try => false goes with the status_code \"pending\" only",
                &format!("The task is returned as {}, and this try is what has ended it.", outcome.name()),
                "Return the task as pending, or leave count_try out.",
            ));
        }
        for (argument, given) in
            [("depends_on", said.depends_on.is_some()), ("wait_at_most", said.wait_at_most.is_some())]
        {
            if given {
                return Err(Refusal::argument(
                    &format!("argument \"{argument}\" goes with the status_code \"pending\" only"),
                    &format!(
                        "The task is returned as {}: it has nothing to wait for any more.",
                        outcome.name()
                    ),
                    "Return the task as pending to have it go on later, or leave the argument out.",
                ));
            }
        }
        let end = End { outcome, status: said.status, result: said.result };
        let children =
            Children::new(said.children.unwrap_or_default(), said.children_block, said.delay_children)?;
        Ok(match children {
            None => Return::Settle(end),
            Some(children) => Return::SettleWith(end, Box::new(children)),
        })
    }

    /// For another try, or until others have ended.
    fn pending(said: Said) -> Result<Self> {
        check_interval("delay_children", said.delay_children)?;
        let waits_for_children = said.children.is_some() && said.children_block;
        let brings_any = said.children.as_ref().is_some_and(|children| !children.is_empty());
        if !waits_for_children && (brings_any || said.delay_children.is_some()) {
            return Err(Refusal::argument(
                "status_code \"pending\" goes with neither children nor a delay for dependents",
                "Children are born when their parent settles, and the delay begins then; or the parent waits for them.",
                "Return the task as completed or as aborted, or add children_block => true to have it go on when they have ended.",
            ));
        }
        if said.depends_on.is_none() && !waits_for_children {
            if said.wait_at_most.is_some() {
                return Err(Refusal::argument(
                    "argument \"wait_at_most\" goes with something to wait for",
                    "Neither depends_on nor children that block are given.",
                    "Name what the task waits for, or give retry_after for a time to wait until.",
                ));
            }
            let how = if said.uncounted { TryEnd::Released } else { TryEnd::GivenBack };
            return Ok(Return::GiveBack(GivenBack {
                status: said.status,
                retry_after: said.retry_after,
                how,
            }));
        }
        let suspension = Suspension {
            status: said.status,
            retry_after: said.retry_after,
            awaited: said.depends_on.unwrap_or_default(),
            children: said.children.unwrap_or_default(),
            delay_children: said.delay_children,
            wait_at_most: said.wait_at_most,
        };
        Ok(Return::Suspend(Box::new(suspension.checked()?)))
    }

    /// Completed, and no more to say.
    pub(crate) fn completed() -> Self {
        Return::Settle(End { outcome: Outcome::Completed, status: None, result: None })
    }

    /// What comes with the end.
    fn children(&self) -> Option<&Children> {
        match self {
            Return::SettleWith(_, children) => Some(children),
            Return::Settle(_) | Return::GiveBack(_) | Return::Suspend(_) => None,
        }
    }

    fn suspension(&self) -> Option<&Suspension> {
        match self {
            Return::Suspend(suspension) => Some(suspension),
            Return::Settle(_) | Return::SettleWith(..) | Return::GiveBack(_) => None,
        }
    }
}

/// Returns each task that its token is good for. A bad token spoils neither the call nor the others.
///
/// The rows of all that is returned in one of the four ways are removed in the order of their numbers; children, and what suspended
/// tasks wait for, make the call a restartable one (see `store::order`).
pub(crate) fn return_all(returns: Vec<Entry>) -> Result<Vec<Given>> {
    let children = || returns.iter().filter_map(|(.., ending)| ending.children());
    let suspensions = || returns.iter().filter_map(|(.., ending)| ending.suspension());
    let codes = if children().next().is_none() && suspensions().next().is_none() {
        return_once(&returns)?
    } else {
        // The keys of unique children come first in the global order.
        let inserted =
            children().flat_map(Children::tasks).chain(suspensions().flat_map(Suspension::inserted));
        let keys = unique::lock_keys(inserted, clock::now());
        let codes = restartable(|| {
            if children().any(Children::needs_guard) {
                // First in the global order.
                guard();
            }
            return_once(&returns)
        })?;
        unique::unlock(&keys);
        codes
    };
    Ok(given(returns, &codes))
}

/// The codes of those whose tokens are good.
fn return_once(returns: &[Entry]) -> Result<HashMap<usize, &'static str>> {
    let now = clock::now();
    let tokens = {
        let pairs: Vec<(Option<String>, Option<Uuid>)> =
            returns.iter().map(|(id, token, _)| (id.clone(), *token)).collect();
        first_of_each(valid(&pairs))
    };
    let (mut settling, mut with_children, mut giving, mut suspending) = (vec![], vec![], vec![], vec![]);
    for (at, token) in tokens.iter().copied() {
        match &returns[at].2 {
            Return::Settle(how) => settling.push(Returned { at, token, how }),
            Return::SettleWith(end, children) => {
                with_children.push(Returned { at, token, how: (end, children.as_ref()) });
            }
            Return::GiveBack(how) => giving.push(Returned { at, token, how }),
            Return::Suspend(how) => suspending.push(Returned { at, token, how: how.as_ref() }),
        }
    }
    let of_each =
        [numbers_of(&settling), numbers_of(&with_children), numbers_of(&giving), numbers_of(&suspending)];
    let ways = of_each.iter().filter(|of_one| !of_one.is_empty()).count();
    if ways > 1 || !with_children.is_empty() || !suspending.is_empty() {
        live::lock(&of_each.concat(), LockStrength::Update);
    }
    let mut codes = settling::settle_each(&settling, now);
    codes.extend(children::settle_with(&with_children, now)?);
    codes.extend(give_back::give_back(&giving, now));
    // Last: what was returned beside them may be what they wait for.
    codes.extend(suspend::suspend(&suspending, now)?);
    let codes: HashMap<usize, &'static str> = codes.into_iter().collect();
    // Asked of good tokens only, and so not before it is known which are good: a made-up token must reveal
    // nothing of its task. What was done by then goes with the refusal.
    let good = tokens.iter().filter(|(at, _)| codes.contains_key(at));
    rights::check_tasks(Doing::Work, good.map(|(_, token)| token.task_no))?;
    Ok(codes)
}

fn numbers_of<T>(returned: &[Returned<T>]) -> Vec<TaskNo> {
    returned.iter().map(|one| one.token.task_no).collect()
}

fn given(returns: Vec<Entry>, codes: &HashMap<usize, &'static str>) -> Vec<Given> {
    let failed = returns.len() > codes.len();
    let (known, shard): (HashSet<String>, i32) = if failed {
        let ids: Vec<&str> = returns.iter().filter_map(|(id, ..)| id.as_deref()).collect();
        (numbers::by_id(&ids).into_keys().collect(), numbers::shard())
    } else {
        Default::default()
    };
    returns
        .into_iter()
        .enumerate()
        .map(|(i, (task_id, token, _))| {
            let code = match (codes.get(&i), &task_id) {
                (Some(code), _) => Ok(*code),
                (None, Some(id)) if !known.contains(id) && !is_foreign(token.as_ref(), shard) => {
                    Err(NO_SUCH_TASK)
                }
                (None, _) => Err(STALE_TOKEN),
            };
            Given { task_id, code }
        })
        .collect()
}

/// In the order of the call; of a pair that stands twice only the first is good.
fn first_of_each(valid: HashMap<usize, Token>) -> Vec<(usize, Token)> {
    let mut tokens: Vec<(usize, Token)> = valid.into_iter().collect();
    tokens.sort_unstable_by_key(|(i, _)| *i);
    let mut seen = HashSet::with_capacity(tokens.len());
    tokens.retain(|(_, token)| seen.insert((token.task_no, token.nonce)));
    tokens
}

/// Rows of performances that have ended.
struct Taken(HashMap<TaskNo, Live>);

/// Removes the rows of performances that end now.
fn take<T>(returned: &[Returned<T>]) -> Taken {
    let rows = run::remove(returned.iter().map(|one| one.token.pair()).collect());
    lease::leave_removed(&rows);
    rows.iter().for_each(|live| wake::let_go(live.task_no));
    slot::release(&rows.iter().filter(|l| l.limited).map(|l| l.task_no).collect::<Vec<_>>());
    Taken(rows.into_iter().map(|live| (live.task_no, live)).collect())
}

impl Taken {
    /// The row of a performance; `None` if its token was not good any more.
    fn of<T>(&self, one: &Returned<T>) -> Option<&Live> {
        let its = Place::Run { nonce: one.token.nonce };
        self.0.get(&one.token.task_no).filter(|live| live.place == its)
    }
}
