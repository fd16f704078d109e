//! The books, looked up by name, task and token.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::book::{Call, Deed, Fate, Spec, Time, family};
use crate::state::{State, Task, Try};

/// A grant that was acknowledged.
pub struct Performance<'a> {
    pub task: &'a str,
    pub token: Uuid,
    pub number: i32,
    pub call: &'a Call,
    /// Until then no client but its holder can have been entitled to the task, by all that is known: neither its
    /// deadline had passed nor had a client sent anything that could end it.
    pub sure_until: Time,
}

pub struct View<'a> {
    pub calls: &'a [Call],
    pub state: &'a State,
    pub by_name: HashMap<&'a str, &'a Call>,
    pub specs: HashMap<&'a str, &'a Spec>,
    pub performances: Vec<Performance<'a>>,
    /// The place of each token's performance; of one that was granted twice, the first.
    pub by_token: HashMap<Uuid, usize>,
    pub tries: HashMap<(&'a str, i32), &'a Try>,
    upset: HashSet<u64>,
}

impl<'a> View<'a> {
    pub fn new(calls: &'a [Call], state: &'a State) -> View<'a> {
        let mut view = View {
            calls,
            state,
            by_name: calls.iter().map(|call| (call.name.as_str(), call)).collect(),
            specs: HashMap::new(),
            performances: Vec::new(),
            by_token: HashMap::new(),
            tries: state.tries.iter().map(|one| ((one.task.as_str(), one.number), one)).collect(),
            upset: HashSet::new(),
        };
        let mut ends = Ends::default();
        for call in calls.iter().filter(|call| call.fate != Fate::Refused) {
            for deed in &call.deeds {
                view.take(call, deed);
                ends.take(call, deed);
            }
        }
        for performance in &mut view.performances {
            ends.apply(performance);
        }
        view
    }

    fn take(&mut self, call: &'a Call, deed: &'a Deed) {
        match deed {
            Deed::Insert(spec) => {
                self.specs.entry(&spec.id).or_insert(spec);
            }
            Deed::Grant { task, token, try_, deadline } => {
                self.by_token.entry(*token).or_insert(self.performances.len());
                let (token, number, sure_until) = (*token, *try_, *deadline);
                self.performances.push(Performance { task, token, number, call, sure_until });
            }
            Deed::Upset { family } => {
                self.upset.insert(*family);
            }
            _ => {}
        }
    }

    /// Whether no client has replaced, retried, reset or deleted the task, or may have: it has one life, and is kept.
    pub fn is_strict(&self, task: &str) -> bool {
        family(task).is_some_and(|family| !self.upset.contains(&family)) && !self.is_fleeting(task)
    }

    pub fn is_fleeting(&self, task: &str) -> bool {
        self.specs.get(task).is_some_and(|spec| spec.fleeting)
    }

    pub fn task(&self, id: &str) -> Option<&'a Task> {
        self.state.tasks.get(id)
    }

    /// The acknowledged grants of strict tasks.
    pub fn strict(&self) -> impl Iterator<Item = &Performance<'a>> {
        self.performances.iter().filter(|performance| self.is_strict(performance.task))
    }

    /// Each return that was acknowledged as accepted or refused, or whose answer was lost.
    pub fn returns(&self) -> impl Iterator<Item = Return<'a>> {
        let of = |call: &'a Call| {
            call.deeds.iter().filter_map(move |deed| match deed {
                Deed::Return { task, token, code, got } => {
                    Some(Return { call, task, token: *token, code, got })
                }
                _ => None,
            })
        };
        self.calls.iter().filter(|call| call.fate != Fate::Refused).flat_map(of)
    }
}

pub struct Return<'a> {
    pub call: &'a Call,
    pub task: &'a str,
    pub token: Uuid,
    pub code: &'a str,
    pub got: &'a str,
}

impl Return<'_> {
    pub fn is_accepted(&self) -> bool {
        self.call.fate == Fate::Done && !self.got.starts_with("TQ")
    }

    /// What the task has got by it, as far as is known.
    pub fn outcome(&self) -> &str {
        if self.got == "accepted" { self.code } else { self.got }
    }
}

/// The call, the lease that it asked for, and whether it was granted, if that is known.
type Extension<'a> = (&'a Call, Time, Option<bool>);

/// All that may have ended a performance, or moved its deadline.
#[derive(Default)]
struct Ends<'a> {
    returns: HashMap<Uuid, Time>,
    cancels: HashMap<&'a str, Vec<&'a Call>>,
    upsets: HashMap<u64, Vec<&'a Call>>,
    extensions: HashMap<Uuid, Vec<Extension<'a>>>,
}

impl<'a> Ends<'a> {
    fn take(&mut self, call: &'a Call, deed: &'a Deed) {
        match deed {
            Deed::Return { token, .. } => {
                let first = self.returns.entry(*token).or_insert(call.sent);
                *first = call.sent.min(*first);
            }
            Deed::Cancel { task } => self.cancels.entry(task).or_default().push(call),
            Deed::Upset { family } => self.upsets.entry(*family).or_default().push(call),
            Deed::Extend { token, lease, owned, .. } => {
                self.extensions.entry(*token).or_default().push((call, *lease, *owned));
            }
            _ => {}
        }
    }

    fn apply(&mut self, performance: &mut Performance) {
        let mut until = performance.sure_until;
        if let Some(extensions) = self.extensions.get_mut(&performance.token) {
            extensions.sort_by_key(|(call, ..)| call.sent);
            for (call, lease, owned) in extensions {
                match owned {
                    // One that came late found its task free, perhaps after others had been in its place.
                    Some(true) if call.received <= until => until = call.sent + *lease,
                    Some(false) => {}
                    _ => until = until.min(call.sent + *lease),
                }
            }
        }
        if let Some(sent) = self.returns.get(&performance.token) {
            until = until.min(*sent);
        }
        let upsets = family(performance.task).and_then(|family| self.upsets.get(&family));
        for call in self.cancels.get(performance.task).into_iter().chain(upsets).flatten() {
            if call.received >= performance.call.sent {
                until = until.min(call.sent);
            }
        }
        performance.sure_until = until;
    }
}
