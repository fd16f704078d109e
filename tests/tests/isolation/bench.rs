//! A database with connections, in which one order after the other is tried.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use taskq_tests::{Db, Session};

use crate::scenes::{Op, Scene};
use crate::stepper::{Reply, Row, Stepper, run};

/// The state by names alone: no numbers, no tokens, and times by the ten minutes. Of settings what a call here can change.
const LOOK: &str = include_str!("look.sql");

/// A claim that leaves something due sends for a worker, whose work would be a step of no transaction. No session here sends for one.
pub const NO_WORKER: &str = "SET taskq.background_worker = off";

pub struct Bench {
    pub watcher: Session,
    pub steppers: Vec<Stepper>,
    /// Goes last.
    _db: Db,
}

/// The names and tokens of one run.
pub struct Names {
    prefix: String,
    /// Tokens that were given out when the scene was set up.
    scene: BTreeMap<String, String>,
    /// And those that each transaction was given.
    own: Vec<BTreeMap<String, String>>,
    /// All that there ever were, with their tasks.
    given: Vec<(String, String)>,
}

impl Bench {
    pub fn new(connections: usize) -> Bench {
        let (db, [mut watcher]) = Db::connected();
        watcher.run(LOOK);
        watcher.run(NO_WORKER);
        // Looking is most of the work: planned once.
        watcher.run("SET taskq.backoff = ''; SET jit = off; SET plan_cache_mode = force_generic_plan");
        let steppers = (0..connections).map(|_| Stepper::new(&db)).collect();
        Bench { watcher, steppers, _db: db }
    }

    /// Sets the scene, under names that no run has used before.
    pub fn set(&mut self, scene: &Scene, transactions: usize) -> Names {
        static RUN: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("n{}_", RUN.fetch_add(1, Ordering::Relaxed));
        let own = vec![BTreeMap::new(); transactions];
        let mut names = Names { prefix, scene: BTreeMap::new(), own, given: Vec::new() };
        for statement in scene.setup {
            let rows = self.call(&names, 0, statement);
            let rows = rows.unwrap_or_else(|error| panic!("[{}] {statement}: {error:?}", scene.name));
            for (task, token) in grants(&names, &rows) {
                names.scene.insert(task.clone(), token.clone());
                names.given.push((task, token));
            }
        }
        names
    }

    /// Runs a statement at once, as one of a transaction would.
    pub fn call(&mut self, names: &Names, transaction: usize, statement: &str) -> Reply {
        run(&mut self.watcher, &names.fill(transaction, statement))
    }

    /// The same in a transaction block.
    pub fn call_in_block(&mut self, names: &Names, transaction: usize, statement: &str) -> Reply {
        self.watcher.run("BEGIN");
        let reply = self.call(names, transaction, statement);
        self.watcher.run(if reply.is_ok() { "COMMIT" } else { "ROLLBACK" });
        reply
    }

    /// Runs a statement of a transaction on its own connection, in a block that stays open.
    pub fn begin_with(&mut self, names: &Names, transaction: usize, statement: &str) {
        self.alone(transaction, "BEGIN".to_owned());
        self.alone(transaction, names.fill(transaction, statement));
    }

    /// And ends the block without it.
    pub fn roll_back(&mut self, transaction: usize) {
        self.alone(transaction, "ROLLBACK".to_owned());
    }

    /// What is refused in there has locked nothing, or what it has locked is held all the same.
    fn alone(&mut self, transaction: usize, statement: String) {
        self.steppers[transaction].send(statement);
        while self.steppers[transaction].settle(&mut self.watcher).is_none() {}
    }

    /// The state as lines.
    pub fn look(&mut self, names: &Names) -> String {
        let lines: Vec<String> = self.watcher.all(&format!("SELECT public.look('{}')", names.prefix));
        names.plain(&lines.join("\n"))
    }

    /// Contradictions in the state.
    pub fn sound(&mut self) -> Result<(), String> {
        let broken: Vec<String> = self.watcher.all("SELECT s::text FROM public.sound() AS s");
        if broken.is_empty() { Ok(()) } else { Err(format!("taskq.check(): {broken:#?}")) }
    }

    /// Has upkeep do what is left to it. The end of a try that is put off because of a lock is tried again seconds later:
    /// from now on, until the state has been compared, it is then.
    pub fn tidy(&mut self, names: &Names) -> Result<(), String> {
        let later = "SELECT set_config('taskq.now', (clock_timestamp() + interval '5 seconds')::text, false)";
        for statement in [later, "SELECT taskq.maintain()"] {
            self.call(names, 0, statement).map_err(|error| format!("{statement}: {error:?}"))?;
        }
        Ok(())
    }

    /// Lets everything run to its end, and tells how each task ended. No task may begin before its dependencies have ended.
    pub fn drain(&mut self, names: &mut Names) -> Result<String, String> {
        for resume in ["SELECT taskq.resume_action('@x')", "SELECT taskq.resume_group('@g')"] {
            // There may be none.
            self.call(names, 0, resume).ok();
        }
        let mut held = names.given.clone();
        for round in 0.. {
            self.give(names, &held);
            let owned = "SELECT task_id, token FROM taskq.own_tasks('last', 100, \
                         (SELECT coalesce(array_agg(DISTINCT action), '{}') FROM taskq.tasks))";
            let rows =
                self.call(names, 0, owned).map_err(|error| format!("the last own_tasks: {error:?}"))?;
            held = grants(names, &rows);
            if held.is_empty() {
                break;
            }
            names.given.extend(held.clone());
            let ids: Vec<String> = held.iter().map(|(task, _)| format!("'{}{task}'", names.prefix)).collect();
            let early = format!(
                "SELECT run, after FROM taskq.dependencies WHERE run IN ({}) AND NOT settled",
                ids.join(", ")
            );
            let early = run(&mut self.watcher, &early).expect("a look at dependencies");
            if !early.is_empty() {
                return Err(format!("granted before its dependencies ended: {early:?}"));
            }
            if round > 20 {
                return Err("there is no end of tasks".to_owned());
            }
        }
        let left = "SELECT id, state FROM taskq.tasks ORDER BY id";
        let rows = self.call(names, 0, left).expect("a look at tasks");
        Ok(rows.iter().map(|row| names.plain(&text(row))).collect::<Vec<_>>().join("\n"))
    }

    fn give(&mut self, names: &Names, held: &[(String, String)]) {
        if held.is_empty() {
            return;
        }
        let list = |values: Vec<String>| values.join(",");
        let ids = list(held.iter().map(|(task, _)| format!("\"{}{task}\"", names.prefix)).collect());
        let tokens = list(held.iter().map(|(_, token)| token.clone()).collect());
        let statement = format!("SELECT * FROM taskq.return_tasks('{{{ids}}}', '{{{tokens}}}')");
        run(&mut self.watcher, &statement).expect("a last return");
    }

    /// Leaves nothing to the next run.
    pub fn clear(&mut self, names: &Names) {
        let all = "(SELECT coalesce(array_agg(id), '{}') FROM taskq.tasks)";
        let statements = format!(
            "SELECT taskq.cancel_tasks({all}); SELECT taskq.delete_tasks({all}); \
             SELECT taskq.unschedule(name) FROM taskq.schedules"
        );
        self.call(names, 0, &statements).expect("everything can be cancelled and deleted");
    }
}

impl Names {
    /// The statement with names and tokens in it.
    pub fn fill(&self, transaction: usize, statement: &str) -> String {
        let mut parts = statement.split('#');
        let mut filled = parts.next().expect("a first part").to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(part.len());
            let (task, rest) = part.split_at(end);
            let token = self.own[transaction].get(task).or_else(|| self.scene.get(task));
            let token = token.map_or("00000000-0000-8000-8000-000000000000", String::as_str);
            filled += &format!("'{token}'::uuid{rest}");
        }
        filled.replace('@', &self.prefix)
    }

    /// The text with the names of the table.
    fn short(&self, text: &str) -> String {
        text.replace(&self.prefix, "")
    }

    /// The same, for comparison.
    pub fn plain(&self, text: &str) -> String {
        let mut text = self.short(text);
        // The runs of a schedule have a time in their ids.
        while let Some(time) = text.find("@20") {
            let end = text[time..].find('Z').map_or(text.len(), |end| time + end + 1);
            text.replace_range(time..end, "'s run");
        }
        text
    }

    /// What a call gave: its rows, whatever their order, without tokens; these the transaction remembers.
    pub fn answer(&mut self, transaction: usize, call: &Op, rows: &[Row]) -> String {
        for (task, token) in grants(self, rows) {
            self.own[transaction].insert(task.clone(), token.clone());
            self.given.push((task, token));
        }
        let mut lines: Vec<String> = rows.iter().map(|row| self.plain(&text(row))).collect();
        lines.sort();
        format!("{}: {}", call.name, lines.join(", "))
    }

    /// What the transaction was given is not valid: it was rolled back.
    pub fn forget(&mut self, transaction: usize) {
        let own = std::mem::take(&mut self.own[transaction]);
        self.given.retain(|(_, token)| !own.values().any(|other| other == token));
    }

    /// Tokens that were given out twice.
    pub fn twice(&self) -> Vec<&String> {
        let mut tokens: Vec<&String> = self.given.iter().map(|(_, token)| token).collect();
        tokens.sort();
        tokens.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
    }
}

/// The tasks and tokens among the rows.
fn grants(names: &Names, rows: &[Row]) -> Vec<(String, String)> {
    let value = |row: &Row, name: &str| {
        row.iter().find(|(column, _)| column == name).and_then(|(_, value)| value.clone())
    };
    let grant = |row: &Row| Some((names.short(&value(row, "task_id")?), value(row, "token")?));
    rows.iter().filter_map(grant).collect()
}

fn text(row: &Row) -> String {
    let shown = row.iter().filter(|(column, _)| column != "token");
    shown.map(|(_, value)| value.as_deref().unwrap_or("NULL")).collect::<Vec<_>>().join(" ")
}
