//! What a return says, checked.

use super::children::Children;
use super::end::{End, GivenBack};
use super::suspend::Suspension;
use super::tries::TryEnd;
use crate::error::{Refusal, Result};
use crate::input::{Said, check_interval, check_value, cut_status, near};
use crate::state::Outcome;
use crate::words::word;

/// How a performance ends.
#[derive(Clone, Debug)]
pub(crate) enum Return {
    /// For good.
    Settle(End),
    /// For good, with tasks that are born of it, or a delay for those that wait for it.
    SettleWith(End, Box<Children>),
    /// For another try.
    GiveBack(GivenBack),
    /// Until other tasks have ended, or a time is over.
    Suspend(Box<Suspension>),
    /// Not at all, since the result is too large: it is refused alone, and spoils no other of the call.
    TooLarge,
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
        // What is probably meant is looked for in what has been refused only: it takes long, beside the rest.
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
        let length = said.result.as_ref().map_or(0, |result| result.0.len());
        if check_value(String::new, length).is_err() {
            return Ok(Return::TooLarge);
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
                status: cut_status(said.status),
                retry_after: said.retry_after,
                how,
            }));
        }
        let suspension = Suspension {
            status: cut_status(said.status),
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
    pub(super) fn children(&self) -> Option<&Children> {
        match self {
            Return::SettleWith(_, children) => Some(children),
            Return::Settle(_) | Return::GiveBack(_) | Return::Suspend(_) | Return::TooLarge => None,
        }
    }

    /// What the task is to wait for, if it is suspended.
    pub(super) fn suspension(&self) -> Option<&Suspension> {
        match self {
            Return::Suspend(suspension) => Some(suspension),
            Return::Settle(_) | Return::SettleWith(..) | Return::GiveBack(_) | Return::TooLarge => None,
        }
    }

    /// What the task leaves, if it is to end.
    pub(super) fn end(&self) -> Option<&End> {
        match self {
            Return::Settle(end) | Return::SettleWith(end, _) => Some(end),
            Return::GiveBack(_) | Return::Suspend(_) | Return::TooLarge => None,
        }
    }
}
