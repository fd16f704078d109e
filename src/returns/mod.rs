//! The end of performances by the verbs that return tasks and by `release_tasks`; and what limits the tries of a task.
//!
//! **A stale token is never trusted.** The row of a performance is removed in the version that has the token's nonce, or
//! not at all: see [`run::remove`](crate::store::run::remove).

mod children;
mod end;
mod give_back;
mod revoke;
mod said;
mod settling;
mod suspend;
mod taken;
pub(crate) mod tokens;
pub(crate) mod tries;

pub(crate) use children::Children;
pub(crate) use revoke::revoke;
pub(crate) use said::Return;

use std::collections::{HashMap, HashSet};

use pgrx::datum::Uuid;

use end::End;
use suspend::Suspension;
use taken::Returned;
use tokens::{is_foreign, valid};

use crate::clock;
use crate::error::{NO_SUCH_TASK, Result, STALE_TOKEN, TOO_LARGE};
use crate::input::MAX_TOGETHER;
use crate::insert::unique;
use crate::locks::{self, LockStrength, guard, restartable_behind};
use crate::number::TaskNo;
use crate::rights::{self, Doing};
use crate::state::Outcome;
use crate::store::{numbers, positions, sizes};
use crate::token::{Nonce, Token};

/// A task, the token it is returned with, and how.
pub(crate) type Entry = (Option<String>, Option<Uuid>, Return);

/// What became of one return.
pub(crate) struct Given {
    /// The id with which it was returned; `None`: without any.
    pub(crate) task_id: Option<String>,
    /// The code that the task has now; or the SQLSTATE, if the return did not work.
    pub(crate) code: std::result::Result<&'static str, &'static str>,
}

/// Returns each task that its token is good for. A bad token spoils neither the call nor the others.
///
/// The rows of all that is returned in one of the four ways are removed in the order of their numbers; children, a delay for
/// dependents and suspensions make the call a restartable one (see `locks::order`).
pub(crate) fn return_all(returns: Vec<Entry>) -> Result<Vec<Given>> {
    let children = || returns.iter().filter_map(|(.., ending)| ending.children());
    let suspensions = || returns.iter().filter_map(|(.., ending)| ending.suspension());
    let outcomes = if children().next().is_none() && suspensions().next().is_none() {
        return_once(&returns)?
    } else {
        // The keys of unique children come before all that a restartable call locks.
        let inserted =
            children().flat_map(Children::tasks).chain(suspensions().flat_map(Suspension::inserted));
        let keys = unique::of(inserted);
        let ahead = || unique::lock_ahead(&keys);
        let outcomes = restartable_behind(ahead, || {
            if children().any(Children::needs_guard) {
                // The first of what a restartable call locks.
                guard();
            }
            return_once(&returns)
        })?;
        unique::unlock(&keys);
        outcomes
    };
    Ok(given(returns, &outcomes))
}

/// What became of those whose tokens are good, or whose results are too large; by their places.
type Outcomes = HashMap<usize, std::result::Result<&'static str, &'static str>>;

/// Returns those whose tokens are good.
fn return_once(returns: &[Entry]) -> Result<Outcomes> {
    let now = clock::now();
    let mut tokens = {
        let pairs: Vec<(Option<String>, Option<Uuid>)> =
            returns.iter().map(|(id, token, _)| (id.clone(), *token)).collect();
        first_of_each(valid(&pairs))
    };
    let too_large = too_large(returns, &tokens);
    tokens.retain(|(at, _)| !too_large.contains(at));
    let (mut settling, mut with_children, mut giving, mut suspending) = (vec![], vec![], vec![], vec![]);
    for (at, token) in tokens.iter().copied() {
        match &returns[at].2 {
            Return::Settle(how) => settling.push(Returned { at, token, how }),
            Return::SettleWith(end, children) => {
                with_children.push(Returned { at, token, how: (end, children.as_ref()) });
            }
            Return::GiveBack(how) => giving.push(Returned { at, token, how }),
            Return::Suspend(how) => suspending.push(Returned { at, token, how: how.as_ref() }),
            Return::TooLarge => {}
        }
    }
    let of_each =
        [numbers_of(&settling), numbers_of(&with_children), numbers_of(&giving), numbers_of(&suspending)];
    let ways = of_each.iter().filter(|of_one| !of_one.is_empty()).count();
    if ways > 1 || !with_children.is_empty() || !suspending.is_empty() {
        locks::lock(&of_each.concat(), LockStrength::Update);
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
    let refused = too_large.into_iter().map(|at| (at, Err(TOO_LARGE)));
    Ok(codes.into_iter().map(|(at, code)| (at, Ok(code))).chain(refused).collect())
}

/// Which of the returns have a result that is too large, alone or beside what their tasks have. What a task has is asked of good tokens
/// only: a made-up one must reveal nothing of it. A checkpoint goes when the task completes.
fn too_large(returns: &[Entry], tokens: &[(usize, Token)]) -> HashSet<usize> {
    let alone = returns.iter().enumerate().filter(|(_, (.., how))| matches!(how, Return::TooLarge));
    let mut too_large: HashSet<usize> = alone.map(|(at, _)| at).collect();
    let asked = |at: usize| returns[at].2.end().filter(|end| sizes::are_asked(end.result_length()));
    let large: HashMap<(TaskNo, Nonce), (usize, &End)> =
        tokens.iter().filter_map(|(at, token)| Some((token.pair(), (*at, asked(*at)?)))).collect();
    if large.is_empty() {
        return too_large;
    }
    for has in sizes::held(large.keys().copied().collect()) {
        let Some((at, end)) = large.get(&(has.task_no, has.nonce)) else { continue };
        let kept = if end.outcome == Outcome::Completed { 0 } else { has.checkpoint };
        let others = [has.body, has.metadata, kept].map(|bytes| bytes as usize);
        if others.iter().sum::<usize>() + end.result_length() > MAX_TOGETHER {
            too_large.insert(*at);
        }
    }
    too_large
}

fn numbers_of<T>(returned: &[Returned<T>]) -> Vec<TaskNo> {
    returned.iter().map(|one| one.token.task_no).collect()
}

fn given(returns: Vec<Entry>, outcomes: &Outcomes) -> Vec<Given> {
    let failed = returns.len() > outcomes.len();
    let (known, shard): (HashSet<String>, i32) = if failed {
        let ids: Vec<&str> = returns.iter().filter_map(|(id, ..)| id.as_deref()).collect();
        (numbers::by_id(&ids).into_keys().collect(), positions::shard())
    } else {
        Default::default()
    };
    returns
        .into_iter()
        .enumerate()
        .map(|(i, (task_id, token, _))| {
            let code = match (outcomes.get(&i), &task_id) {
                (Some(outcome), _) => *outcome,
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
