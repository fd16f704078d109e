//! What the caller may do, where its part is narrowed to some actions.
//!
//! That a role may call a function at all is its right on that function, and Postgres' business. Here is the check that
//! functions cannot make by themselves: that the role may do so with tasks of some actions only. Which parts a role has
//! is the right to call a marker function (see `sql/grants.sql`); which actions a narrowed part has is in
//! `part_action`.
//!
//! **A role without a narrowed part pays for one look-up in the memory of this backend** in each call, once its parts are
//! there. What is kept there is thrown away whenever rights on functions, roles or memberships change. The actions of a
//! narrowed part are read anew by each call.
//!
//! **What follows from a call is not checked.** Dependents are signalled, deadlines and schedules taken care of, whatever
//! their actions are: only what the caller names, asks for by a filter or inserts is checked.

use pgrx::pg_sys::{InvalidOid, Oid};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use crate::error::{Refusal, Result, or_throw};
use crate::memory::{Belief, Memory, Remembered};
use crate::number::TaskNo;
use crate::pg::caller::{AsOwner, Role, rights_version};
use crate::pg::search_path;
use crate::pg::statement::Statement;
use crate::pg::subtransaction::keeping_no_locks;
use crate::store::numbers;

/// What is done with tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Inserting them, and linking them to others.
    Insert,
    /// Changing and ending those there are.
    Change,
    /// Waiting for them.
    Look,
    /// Performing them.
    Work,
}

/// The actions to which what a role does is narrowed; `None` where it is not.
#[derive(Clone, Default)]
struct Access {
    insert: Option<Rc<BTreeSet<String>>>,
    change: Option<Rc<BTreeSet<String>>>,
    look: Option<Rc<BTreeSet<String>>>,
    work: Option<Rc<BTreeSet<String>>>,
    /// It inserts tasks, and may not touch those there are.
    only_inserts: bool,
    /// Nor does it see them: it is no monitor either.
    sees_none: bool,
    /// It is an operator, whatever else it is.
    operates: bool,
    /// Who calls.
    role: Role,
}

impl Access {
    fn of(&self, doing: Doing) -> Option<&Rc<BTreeSet<String>>> {
        match doing {
            Doing::Insert => self.insert.as_ref(),
            Doing::Change => self.change.as_ref(),
            Doing::Look => self.look.as_ref(),
            Doing::Work => self.work.as_ref(),
        }
    }
}

/// Which markers a role may call, as bits: inserter, producer, worker, operator, monitor; then the narrowed ones of the
/// first three.
type Parts = i32;
const INSERTER: Parts = 1;
const PRODUCER: Parts = 2;
const WORKER: Parts = 4;
const OPERATOR: Parts = 8;
const MONITOR: Parts = 16;
const NARROWED: u32 = 5;

/// The parts of roles.
static KNOWN: Memory<Remembered<Role, Parts>> = Memory::of(Belief::Parts);

/// The call under way.
struct Call {
    /// Who has made it; [`InvalidOid`]: none is under way.
    role: Cell<Role>,
    /// What it may do.
    access: RefCell<Rc<Access>>,
    /// Whether what is done now was not asked for by the caller.
    is_suspended: Cell<bool>,
}

thread_local! {
    static CALL: Call =
        Call { role: Cell::new(InvalidOid), access: RefCell::default(), is_suspended: Cell::new(false) };
}

/// Does what the caller asks for, with the owner's rights and within the caller's.
pub(crate) fn for_caller<R>(work: impl FnOnce() -> Result<R>) -> R {
    let _path = search_path::Call::begin();
    let owner = AsOwner::begin();
    let access = Rc::new(access(owner.caller()));
    let _before = Before(CALL.with(|call| (call.role.replace(owner.caller()), call.access.replace(access))));
    or_throw(work())
}

/// Does with the owner's rights what no caller has asked for.
pub(crate) fn for_no_caller(work: impl FnOnce()) {
    let _path = search_path::Call::begin();
    let _owner = AsOwner::begin();
    without_rights(work);
}

/// What another call around this one may do; put back at the end, whichever way it ends.
struct Before((Role, Rc<Access>));

impl Drop for Before {
    fn drop(&mut self) {
        CALL.with(|call| {
            call.role.set(self.0.0);
            call.access.replace(self.0.1.clone())
        });
    }
}

/// Does what is due, with no check of the caller's parts.
pub(crate) fn without_rights<R>(work: impl FnOnce() -> R) -> R {
    struct Resume(bool);
    impl Drop for Resume {
        fn drop(&mut self) {
            CALL.with(|call| call.is_suspended.set(self.0));
        }
    }
    let _resume = Resume(CALL.with(|call| call.is_suspended.replace(true)));
    work()
}

static MAY_CALL: Statement<(Oid, &str), bool> = Statement::new(
    c"SELECT pg_catalog.has_function_privilege($1, $2::pg_catalog.regproc::pg_catalog.oid, 'EXECUTE')",
);

/// Asks anew what the caller may do, for a call that has slept in `function`: parts may have been taken back or narrowed meanwhile.
/// What was checked before the sleep is to be checked once more after this. The look is a statement, and so has received the messages of
/// all that committed before. Where the extension was dropped it ends with the error of a schema or function that does not exist.
pub(crate) fn after_sleep(function: &'static str) -> Result<()> {
    let role = CALL.with(|call| call.role.get());
    keeping_no_locks(|| match MAY_CALL.first((role, function)) {
        Some(true) => {
            let access = Rc::new(access(role));
            CALL.with(|call| call.access.replace(access));
            Ok(())
        }
        _ => Err(Refusal::taken_back(function)),
    })
}

static PARTS: Statement<Oid, i32> = Statement::new(
    c"SELECT pg_catalog.has_function_privilege($1, 'taskq._is_inserter()', 'EXECUTE')::integer
             + pg_catalog.has_function_privilege($1, 'taskq._is_producer()', 'EXECUTE')::integer * 2
             + pg_catalog.has_function_privilege($1, 'taskq._is_worker()', 'EXECUTE')::integer * 4
             + pg_catalog.has_function_privilege($1, 'taskq._is_operator()', 'EXECUTE')::integer * 8
             + pg_catalog.has_function_privilege($1, 'taskq._is_monitor()', 'EXECUTE')::integer * 16
             + pg_catalog.has_function_privilege($1, 'taskq._is_narrowed_inserter()', 'EXECUTE')::integer * 32
             + pg_catalog.has_function_privilege($1, 'taskq._is_narrowed_producer()', 'EXECUTE')::integer * 64
             + pg_catalog.has_function_privilege($1, 'taskq._is_narrowed_worker()', 'EXECUTE')::integer * 128",
);

/// The actions of narrowed parts that a role has, itself or as a member of another, and that were not taken back.
static ACTIONS: Statement<Oid, (i32, String)> = Statement::new(
    c"SELECT CASE p.part WHEN 'inserter' THEN 1 WHEN 'producer' THEN 2 ELSE 4 END, p.action
        FROM taskq.part_action p
       WHERE pg_catalog.pg_has_role($1, p.role::pg_catalog.oid, 'USAGE')
         AND pg_catalog.has_function_privilege(p.role::pg_catalog.oid, 'taskq._is_narrowed_' || p.part || '()', 'EXECUTE')",
);

/// Of which parts what a role does is narrowed: what a part contains that is not narrowed is not narrowed, whatever the
/// others say. (A superuser has every part, narrowed and whole.)
fn narrowed(parts: Parts, doing: Doing) -> Parts {
    let (whole, narrow) = match doing {
        Doing::Insert => (INSERTER | PRODUCER | WORKER, INSERTER | PRODUCER | WORKER),
        Doing::Change => (PRODUCER | WORKER | OPERATOR, PRODUCER | WORKER),
        Doing::Look => (PRODUCER | WORKER | OPERATOR | MONITOR, PRODUCER | WORKER),
        Doing::Work => (WORKER, WORKER),
    };
    if parts & whole == 0 { (parts >> NARROWED) & narrow } else { 0 }
}

fn access(role: Role) -> Access {
    let parts = parts(role);
    let of = [Doing::Insert, Doing::Change, Doing::Look, Doing::Work].map(|doing| narrowed(parts, doing));
    let changers = PRODUCER | WORKER | OPERATOR;
    let all = parts | parts >> NARROWED;
    let only_inserts = all & INSERTER != 0 && all & changers == 0;
    let sees_none = only_inserts && all & MONITOR == 0;
    let whole =
        Access { only_inserts, sees_none, operates: parts & OPERATOR != 0, role, ..Access::default() };
    if of == [0; 4] {
        return whole;
    }
    // The call may go to sleep.
    let actions: Vec<(Parts, String)> = keeping_no_locks(|| ACTIONS.query(role));
    let [insert, change, look, work] = of.map(|narrow| {
        (narrow != 0).then(|| {
            Rc::new(actions.iter().filter(|(part, _)| part & narrow != 0).map(|(_, a)| a.clone()).collect())
        })
    });
    Access { insert, change, look, work, ..whole }
}

fn parts(role: Role) -> Parts {
    let version = rights_version();
    let known = KNOWN.with(|known| {
        known.as_of(version);
        known.get(&role).copied()
    });
    known.unwrap_or_else(|| {
        let parts = PARTS.first(role).unwrap_or(0);
        // If rights have changed meanwhile, the next call finds another version and asks again.
        KNOWN.with(|known| known.note(role, parts));
        parts
    })
}

/// The actions to which the caller is narrowed; `None` if it is not.
fn allowed(doing: Doing) -> Option<Rc<BTreeSet<String>>> {
    CALL.with(|call| if call.is_suspended.get() { None } else { call.access.borrow().of(doing).cloned() })
}

/// Whether the caller's part is narrowed to some actions.
pub(crate) fn is_narrowed(doing: Doing) -> bool {
    allowed(doing).is_some()
}

/// Refuses actions that the caller has nothing to do with.
pub(crate) fn check_actions<'a>(doing: Doing, actions: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let Some(allowed) = allowed(doing) else { return Ok(()) };
    match actions.into_iter().find(|action| !allowed.contains(*action)) {
        Some(action) => Err(Refusal::other_action(action, &allowed)),
        None => Ok(()),
    }
}

/// The actions of those named that the caller has to do with; of none named all of these. `None`: all there are.
pub(crate) fn only_allowed(doing: Doing, named: Option<Vec<String>>) -> Result<Option<Vec<String>>> {
    match named {
        Some(named) => check_actions(doing, named.iter().map(String::as_str)).map(|()| Some(named)),
        None => Ok(allowed(doing).map(|allowed| allowed.iter().cloned().collect())),
    }
}

/// Refuses a call that could be about tasks of any action, where the caller's part is narrowed.
pub(crate) fn check_whole_queue(doing: Doing) -> Result<()> {
    allowed(doing).map_or(Ok(()), |allowed| Err(Refusal::other_tasks(&allowed)))
}

/// Whether the call under way is of such a caller.
fn is(what: fn(&Access) -> bool) -> bool {
    CALL.with(|call| what(&call.access.borrow()) && !call.is_suspended.get())
}

/// The role that calls.
pub(crate) fn caller() -> Role {
    CALL.with(|call| call.access.borrow().role)
}

/// Whether the caller is an operator.
pub(crate) fn operates() -> bool {
    is(|access| access.operates)
}

/// Refuses to replace tasks, for a caller that may only insert.
pub(crate) fn check_replacing() -> Result<()> {
    match is(|access| access.only_inserts) {
        true => Err(Refusal::only_inserts(
            "replace tasks",
            "Use on_conflict => 'skip', or ask the administrator of the queue for the part of a producer.",
        )),
        false => Ok(()),
    }
}

/// Refuses a seed, for a caller that may not delete each task that is in its group: a reset deletes what is beside the seeds.
pub(crate) fn check_seeding(members: impl IntoIterator<Item = TaskNo>) -> Result<()> {
    match is(|access| access.only_inserts) {
        true => Err(Refusal::only_inserts(
            "insert a seed",
            "Leave out \"seed\", or ask the administrator of the queue for the part of a producer.",
        )),
        false => check_found(Doing::Change, members),
    }
}

/// Whether the caller may have tasks of the queue wait for those that the call inserts.
pub(crate) fn may_block() -> bool {
    !is(|access| access.only_inserts)
}

/// Refuses to have a task of the queue wait, for a caller that may only insert; before anything is said of its state.
pub(crate) fn check_blocking() -> Result<()> {
    match may_block() {
        false => Err(Refusal::only_inserts(
            "make tasks of the queue wait",
            "Name only tasks in to_signal_after that the call inserts, or ask the administrator of the queue for the part of a \
             producer.",
        )),
        true => Ok(()),
    }
}

/// Whether the caller may learn how the task with this id stands, which is in its way.
pub(crate) fn may_hear_of(doing: Doing, id: &str) -> bool {
    !is(|access| access.sees_none) && check_named(doing, [id]).is_ok()
}

static OF_OTHERS: Statement<(&[TaskNo], &[&str]), String> = Statement::new(
    c"SELECT t.id
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
       WHERE NOT a.name = ANY ($2)
       LIMIT 1",
);

/// Those of the tasks that are within the caller's part.
pub(crate) fn only_own(doing: Doing, task_nos: Vec<TaskNo>) -> Vec<TaskNo> {
    let Some(allowed) = allowed(doing) else { return task_nos };
    let names: Vec<&str> = allowed.iter().map(String::as_str).collect();
    let own: HashSet<TaskNo> = OF_THESE.query((task_nos.as_slice(), names)).into_iter().collect();
    task_nos.into_iter().filter(|task_no| own.contains(task_no)).collect()
}

static OF_THESE: Statement<(&[TaskNo], &[&str]), TaskNo> = Statement::new(
    c"SELECT u.task_no
        FROM pg_catalog.unnest($1) AS u(task_no)
       CROSS JOIN LATERAL (SELECT t.action_no FROM taskq.task t WHERE t.task_no = u.task_no OFFSET 0) AS t
       CROSS JOIN LATERAL (SELECT a.name FROM taskq.action a WHERE a.action_no = t.action_no OFFSET 0) AS a
       WHERE a.name = ANY ($2)",
);

/// Refuses what concerns tasks of any action, also such as there are not yet, to a caller whose part is narrowed. `what` it may not do.
pub(crate) fn check_shared(doing: Doing, what: &str, hint: &str) -> Result<()> {
    allowed(doing).map_or(Ok(()), |_| Err(Refusal::concerns_all(what, hint)))
}

/// Refuses tasks of other actions than the caller's, which it has named by their ids. A number is that of one task for ever: what
/// is locked afterwards is what was asked about.
pub(crate) fn check_tasks(doing: Doing, task_nos: impl IntoIterator<Item = TaskNo>) -> Result<()> {
    refuse_others(doing, task_nos, |id, allowed| Refusal::other_task(&id, allowed))
}

/// The same of tasks that the caller has not named by their ids, and does not learn of by them either.
pub(crate) fn check_found(doing: Doing, task_nos: impl IntoIterator<Item = TaskNo>) -> Result<()> {
    refuse_others(doing, task_nos, |_, allowed| Refusal::other_tasks(allowed))
}

fn refuse_others(
    doing: Doing,
    task_nos: impl IntoIterator<Item = TaskNo>,
    refusal: impl FnOnce(String, &BTreeSet<String>) -> Refusal,
) -> Result<()> {
    let Some(allowed) = allowed(doing) else { return Ok(()) };
    let task_nos: Vec<TaskNo> = task_nos.into_iter().collect();
    let names: Vec<&str> = allowed.iter().map(String::as_str).collect();
    OF_OTHERS.first((task_nos, names)).map_or(Ok(()), |id| Err(refusal(id, &allowed)))
}

/// [`check_tasks`] by the ids, before anything else is said of them: the refusal must reveal nothing of a task that
/// is outside the caller's part.
pub(crate) fn check_named<'a>(doing: Doing, ids: impl IntoIterator<Item = &'a str>) -> Result<()> {
    if !is_narrowed(doing) {
        return Ok(());
    }
    let ids: Vec<&str> = ids.into_iter().collect();
    check_tasks(doing, numbers::by_id(&ids).into_values())
}
