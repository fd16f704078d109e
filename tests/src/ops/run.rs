//! Does an operation to both, and compares what they say.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use postgres::Error;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::model::{Code, Counts, Edge, Expected, Granted, Millis, Mode, Model, New};
use crate::session::{Grant, Session};

use super::Op;

/// The queue and the model that says how it must behave.
pub struct Pair {
    /// Several connections, used in turn: what a backend remembers must not matter.
    sessions: Vec<Session>,
    calls: usize,
    model: Model,
    start: DateTime<Utc>,
    /// Every grant there was.
    grants: Vec<(String, Uuid)>,
}

/// As shipped, but without chance.
const BACKOFF: &str = r#"{"kind": "exponential", "initial": "1 second", "max": "10 minutes"}"#;

/// What is wrong, in words.
type Verdict = Result<(), String>;

impl Pair {
    /// Starts with an empty queue and an empty model, at a fixed point of time.
    pub fn new(mut sessions: Vec<Session>) -> Pair {
        let start = "2030-01-01T00:00:00Z".parse().expect("a valid time");
        for session in &mut sessions {
            session.set_now(Some("2030-01-01T00:00:00Z"));
            session.run(&format!("SET taskq.backoff = '{BACKOFF}'"));
        }
        let all = "SELECT coalesce(array_agg(id), '{}') FROM taskq.tasks";
        sessions[0].run(&format!("SELECT taskq.cancel_tasks(({all})); SELECT taskq.delete_tasks(({all}))"));
        Pair { sessions, calls: 0, model: Model::default(), start, grants: Vec::new() }
    }

    /// Hands the connections to the next run.
    pub fn into_sessions(self) -> Vec<Session> {
        self.sessions
    }

    /// Does the operation to both and compares the answers, then the states.
    pub fn step(&mut self, op: &Op) -> Verdict {
        self.calls += 1;
        match op {
            Op::Insert { tasks, mode, ignore_missing } => self.insert(tasks, *mode, *ignore_missing)?,
            Op::Own { actor, max_tasks, actions, lease } => self.own(actor, *max_tasks, actions, *lease)?,
            Op::Return { grant, task, code, retry_after, count_try } => {
                self.give(*grant, task.as_deref(), *code, *retry_after, *count_try)?;
            }
            Op::ReturnMany { grants, code } => self.give_many(grants, *code)?,
            Op::Extend { actor, grants, lease } => self.extend(actor, grants, *lease)?,
            Op::Depend(edges) => self.depend(edges)?,
            Op::Delete(ids) => self.delete(ids)?,
            Op::Cancel(ids) => self.cancel(ids)?,
            Op::Release { tasks, actor } => self.release(tasks, *actor)?,
            Op::Advance(by) => self.advance(*by),
        }
        self.compare_states()
    }

    fn session(&mut self) -> &mut Session {
        let turn = self.calls % self.sessions.len();
        &mut self.sessions[turn]
    }

    fn insert(&mut self, tasks: &[New], mode: Mode, ignore_missing: bool) -> Verdict {
        let array: Value = tasks.iter().map(task_json).collect();
        let function = if mode == Mode::Replace { "replace_tasks" } else { "insert_tasks" };
        let on_conflict = if mode == Mode::Skip { ", on_conflict => 'skip'" } else { "" };
        let if_missing = if ignore_missing { ", if_missing => 'ignore'" } else { "" };
        let query = format!("SELECT * FROM taskq.{function}($1{on_conflict}{if_missing})");
        let answer = self.session().query(&query, &[&array]);
        let answer = answer.map(|rows| rows.iter().map(|row| row.get(0)).collect::<Vec<String>>());
        same(answer, self.model.insert(tasks, mode, ignore_missing), |got, expected| got == expected)
    }

    fn own(&mut self, actor: &str, max_tasks: i32, actions: &[String], lease: Option<Millis>) -> Verdict {
        let lease_sql = lease.map_or("NULL".to_owned(), |lease| format!("'{lease} milliseconds'"));
        let listed: Vec<&str> = actions.iter().map(String::as_str).collect();
        let start = self.start;
        let answer = self.session().own_with(actor, max_tasks, &listed, &format!("lease => {lease_sql}"));
        let grants = answer.map_err(|error| format!("own_tasks failed: {error:?}"))?;
        self.grants.extend(grants.iter().map(|grant| (grant.task_id.clone(), grant.token)));
        let granted: Vec<Granted> = grants.iter().map(|grant| granted(grant, start)).collect();
        self.model.own(actor, max_tasks as usize, actions, lease, &granted)
    }

    /// The grant of this number; before the first one, a token that no worker was ever given.
    fn grant(&self, number: usize) -> (String, Uuid) {
        // The latest are the likeliest to be alive.
        let latest = self.grants.len().min(4);
        let choice = if number.is_multiple_of(5) {
            number % self.grants.len().max(1)
        } else {
            self.grants.len() - latest + number % latest.max(1)
        };
        self.grants.get(choice).cloned().unwrap_or_else(|| ("a".to_owned(), Uuid::from_u128(number as u128)))
    }

    fn give(
        &mut self,
        number: usize,
        task: Option<&str>,
        code: Code,
        retry_after: Option<Millis>,
        count_try: bool,
    ) -> Verdict {
        let (granted_id, token) = self.grant(number);
        let id = task.unwrap_or(&granted_id);
        let retry_after = retry_after.filter(|_| code == Code::Pending);
        let arguments = retry_after.map_or("retry_after => NULL".to_owned(), |delay| {
            format!("retry_after => '{delay} milliseconds'")
        });
        let arguments = format!("{arguments}, count_try => {count_try}");
        let answer = self.session().give_with(id, token, code.as_str(), &arguments);
        let expected = self.model.give(id, token, code, retry_after, count_try);
        same(answer, expected, |got, code| got == code.as_str())
    }

    fn release(&mut self, ids: &[String], actor: Option<&str>) -> Verdict {
        let actors: Option<Vec<&str>> = actor.map(|actor| vec![actor]);
        let answer = self.session().query_one("SELECT taskq.release_tasks($1, $2)", &[&ids, &actors]);
        let answer = answer.map(|row| row.get::<_, i64>(0));
        same(answer, Ok(self.model.release(ids, actor)), |got, expected| got == expected)
    }

    fn give_many(&mut self, numbers: &[usize], code: Code) -> Verdict {
        let (ids, tokens): (Vec<String>, Vec<Uuid>) =
            numbers.iter().map(|number| self.grant(*number)).unzip();
        let query = "SELECT task_id, status_code::text, sqlstate \
                     FROM taskq.return_tasks($1, $2, $3::text::taskq.status_code)";
        let answer = self.session().query(query, &[&ids, &tokens, &code.as_str()]);
        if code == Code::InProgress {
            return same(answer.map(drop), Err(BTreeSet::from(["22023"])), |(), ()| true);
        }
        let rows = answer.map_err(|error| format!("return_tasks failed: {error:?}"))?;
        if rows.len() != ids.len() {
            return Err(format!("return_tasks gave {} rows for {} pairs", rows.len(), ids.len()));
        }
        for (row, (id, token)) in rows.iter().zip(ids.iter().zip(tokens)) {
            let (got_id, got_code, got_state): (Option<String>, Option<String>, Option<String>) =
                (row.get(0), row.get(1), row.get(2));
            let expected = self.model.give(id, token, code, None, true);
            let agree = match &expected {
                Ok(code) => got_code.as_deref() == Some(code.as_str()) && got_state.is_none(),
                Err(codes) => {
                    got_code.is_none() && got_state.as_deref().is_some_and(|state| codes.contains(state))
                }
            };
            if !agree || got_id.as_ref() != Some(id) {
                return Err(format!("return_tasks said {row:?} of {id}, but must say {expected:?}"));
            }
        }
        Ok(())
    }

    fn extend(&mut self, actor: &str, numbers: &[usize], lease: Millis) -> Verdict {
        let held: Vec<(String, Uuid)> = numbers.iter().map(|number| self.grant(*number)).collect();
        let pairs: Vec<(&str, Uuid)> = held.iter().map(|(id, token)| (id.as_str(), *token)).collect();
        let answer = self.session().extend(actor, &pairs, &format!("{lease} milliseconds"));
        let expected = held
            .iter()
            .map(|(id, token)| (id.clone(), self.model.extend(actor, id, *token, lease)))
            .collect();
        same(answer, Ok(expected), |got, expected: &Vec<_>| got == expected)
    }

    fn depend(&mut self, edges: &[Edge]) -> Verdict {
        let array =
            edges.iter().map(|e| json!({"after": e.after, "run": e.run, "condition": e.condition.as_str()}));
        let array: Value = array.collect();
        let answer = self.session().depend(array);
        same(answer, self.model.depend(edges), |got, (least, most)| least <= got && got <= most)
    }

    fn delete(&mut self, ids: &[String]) -> Verdict {
        let listed: Vec<&str> = ids.iter().map(String::as_str).collect();
        let answer = self.session().delete(&listed);
        same(answer, self.model.delete(ids), |got, expected| got == expected)
    }

    fn cancel(&mut self, ids: &[String]) -> Verdict {
        let listed: Vec<&str> = ids.iter().map(String::as_str).collect();
        let answer = self.session().cancel(&listed);
        same(answer, Ok(self.model.cancel(ids)), |got, expected| got == expected)
    }

    fn advance(&mut self, by: Millis) {
        self.model.advance(by);
        let now = self.start + TimeDelta::milliseconds(self.model.now());
        for session in &mut self.sessions {
            session.set_now(Some(&now.to_rfc3339()));
        }
    }

    fn compare_states(&mut self) -> Verdict {
        let start = self.start;
        let shown = self.session().tasks();
        let expected = self.model.view();
        let ids = |ids: &mut dyn Iterator<Item = &String>| ids.cloned().collect::<Vec<_>>();
        let (got, wanted) = (ids(&mut shown.iter().map(|t| &t.id)), ids(&mut expected.iter().map(|v| &v.id)));
        if got != wanted {
            return Err(format!("the tasks are {got:?}, but must be {wanted:?}"));
        }
        for (task, view) in shown.iter().zip(&expected) {
            let mut seen = view.clone();
            seen.action.clone_from(&task.action);
            seen.priority = task.priority;
            seen.num_tries = task.num_tries;
            seen.max_tries = task.max_tries;
            seen.counts = seen.counts.map(|counts| Counts {
                num_signals: task.num_signals,
                total_dependencies: task.total_dependencies,
                num_failures: around(counts.num_failures, task.num_failures),
            });
            seen.holder = seen.holder.map(|_| {
                (
                    task.actor_id.clone().unwrap_or_default(),
                    task.action_deadline.map(|deadline| millis(deadline, start)),
                )
            });
            if seen != *view || task.status_code != view.status_code || task.state != view.state {
                return Err(format!("taskq.tasks shows\n{task:?}, but must show\n{view:?}"));
            }
        }
        let broken = self.session().broken();
        if broken.is_empty() { Ok(()) } else { Err(format!("taskq.check(): {broken:#?}")) }
    }
}

fn same<G, E>(answer: Result<G, Error>, expected: Expected<E>, equal: impl Fn(&G, &E) -> bool) -> Verdict
where
    G: std::fmt::Debug,
    E: std::fmt::Debug,
{
    let agree = match (&answer, &expected) {
        (Ok(got), Ok(expected)) => equal(got, expected),
        (Err(error), Err(codes)) => error.code().is_some_and(|code| codes.contains(code.code())),
        _ => false,
    };
    if agree { Ok(()) } else { Err(format!("the queue said {answer:?}, but must say {expected:?}")) }
}

/// The range itself if the number is in it.
fn around(range: (i32, i32), number: i32) -> (i32, i32) {
    if (range.0..=range.1).contains(&number) { range } else { (number, number) }
}

fn granted(grant: &Grant, start: DateTime<Utc>) -> Granted {
    Granted {
        task_id: grant.task_id.clone(),
        token: grant.token,
        num_tries: grant.num_tries,
        num_failures: grant.num_failures,
        deadline: grant.action_deadline.map(|deadline| millis(deadline, start)),
    }
}

fn millis(time: DateTime<Utc>, start: DateTime<Utc>) -> Millis {
    (time - start).num_milliseconds()
}

fn task_json(task: &New) -> Value {
    let interval = |time: Option<Millis>| time.map(|time| format!("{time} milliseconds"));
    let end = |id: &str, edge: &Edge| json!({"id": id, "condition": edge.condition.as_str()});
    // An edge from a task to itself is one that it depends on.
    let depends_on: Value =
        task.edges.iter().filter(|e| e.run == task.id).map(|e| end(&e.after, e)).collect();
    let to_signal: Value = task.edges.iter().filter(|e| e.run != task.id).map(|e| end(&e.run, e)).collect();
    json!({
        "id": task.id,
        "action": task.action,
        "priority": task.priority,
        "max_tries": task.max_tries,
        "lease": interval(task.lease),
        "delay": interval(task.delay),
        "spontaneous": task.spontaneous,
        "depends_on": depends_on,
        "to_signal_after": to_signal,
    })
}
