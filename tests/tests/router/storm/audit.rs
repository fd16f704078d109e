//! The book against the shards: what was acknowledged is there, once, and has become what the book says.
//!
//! What went wrong as it happened, a token that was granted twice for example, the [`Book`](super::book::Book) has
//! noted. Here is what shows in the end. A call whose outcome is unknown may have happened or not; a rule complains
//! only where neither could be. Each has tests that give it a state or a book that is wrong ([`tests`](super::tests)).

use std::collections::{BTreeMap, HashMap};

use taskq_tests::Session;

use super::book::{Pages, Told};

/// A task as its shard has it in the end.
#[derive(Clone, Default)]
pub struct Task {
    pub code: String,
    pub group: Option<String>,
    pub tries: i64,
    pub after: Vec<String>,
}

/// The tasks of a shard, by their ids.
pub type Shard = BTreeMap<String, Task>;

/// What a shard has.
pub fn state(shard: &mut Session) -> Shard {
    let query = "SELECT t.id, t.status_code::text, t.group_id, t.num_tries::bigint,
                        ARRAY(SELECT d.after FROM taskq.dependencies AS d WHERE d.run = t.id)
                   FROM taskq.tasks AS t";
    let rows = shard.query(query, &[]).unwrap();
    rows.iter()
        .map(|row| {
            let task = Task { code: row.get(1), group: row.get(2), tries: row.get(3), after: row.get(4) };
            (row.get(0), task)
        })
        .collect()
}

/// All that a rule may look at.
struct View<'a> {
    pages: &'a Pages,
    shards: &'a [Shard],
    /// Which shard the router takes to have a group.
    homes: &'a HashMap<String, usize>,
}

impl View<'_> {
    /// Each task of each shard, with the number of that.
    fn tasks(&self) -> impl Iterator<Item = (usize, &str, &Task)> {
        let numbered = self.shards.iter().enumerate();
        numbered.flat_map(|(n, shard)| shard.iter().map(move |(id, task)| (n, id.as_str(), task)))
    }

    fn task(&self, id: &str) -> Option<&Task> {
        self.shards.iter().find_map(|shard| shard.get(id))
    }

    /// The returns that would end a task.
    fn ends(&self, id: &str) -> &[(String, Told)] {
        self.pages.ends.get(id).map_or(&[], Vec::as_slice)
    }

    /// The codes of those that were acknowledged.
    fn accepted(&self, id: &str) -> Vec<&str> {
        self.ends(id).iter().filter(|(_, told)| *told == Told::Done).map(|(code, _)| code.as_str()).collect()
    }
}

/// A rule, and its name.
type Rule = (&'static str, fn(&View) -> Vec<String>);

const RULES: [Rule; 9] = [
    ("inserted", is_there),
    ("sent", was_sent),
    ("one shard", is_on_one_shard),
    ("home", is_at_home),
    ("one end", ended_once),
    ("end", ended_by_a_call),
    ("left over", is_over),
    ("tries", tries_are_counted),
    ("dependencies", dependencies_are_kept),
];

/// Everything that does not agree.
pub fn audit(pages: &Pages, shards: &[Shard], homes: &HashMap<String, usize>) -> Vec<String> {
    let view = View { pages, shards, homes };
    let found = RULES
        .iter()
        .flat_map(|(name, rule)| rule(&view).into_iter().map(move |found| format!("{name}: {found}")));
    pages.seen.iter().cloned().chain(found).collect()
}

fn is_there(view: &View) -> Vec<String> {
    let acknowledged = view.pages.sent.iter().filter(|(_, known)| **known).map(|(id, _)| id);
    let lost = acknowledged.filter(|id| view.task(id).is_none());
    lost.map(|id| format!("{id} was acknowledged, and is not there")).collect()
}

fn was_sent(view: &View) -> Vec<String> {
    let strays = view.tasks().filter(|(_, id, _)| !view.pages.sent.contains_key(*id));
    strays.map(|(shard, id, _)| format!("{id} is on shard {shard}, and was never sent")).collect()
}

fn is_on_one_shard(view: &View) -> Vec<String> {
    let mut first: HashMap<&str, usize> = HashMap::new();
    view.tasks()
        .filter_map(|(shard, id, _)| {
            let other = first.insert(id, shard)?;
            Some(format!("{id} is on the shards {other} and {shard}"))
        })
        .collect()
}

/// A client that asks the router for a group finds all of it.
fn is_at_home(view: &View) -> Vec<String> {
    view.tasks()
        .filter_map(|(shard, id, task)| {
            let group = task.group.as_ref()?;
            let home = view.homes.get(group);
            (home != Some(&shard)).then(|| format!("{id} of {group} is on shard {shard}, not on {home:?}"))
        })
        .collect()
}

fn ended_once(view: &View) -> Vec<String> {
    let twice = view.pages.ends.keys().filter(|id| view.accepted(id).len() > 1);
    twice.map(|id| format!("{id} was ended as {:?}", view.accepted(id))).collect()
}

fn ended_by_a_call(view: &View) -> Vec<String> {
    view.tasks()
        .filter_map(|(_, id, task)| {
            if let Some(other) = view.accepted(id).into_iter().find(|code| *code != task.code) {
                return Some(format!("{id} is {}, and was ended as {other}", task.code));
            }
            let ends = view.ends(id);
            let asked = ends.iter().any(|(code, told)| *code == task.code && *told != Told::Refused);
            let unasked = match task.code.as_str() {
                "completed" => !asked,
                "aborted" => !asked && !is_aborted_by_others(view, id),
                _ => false,
            };
            unasked.then(|| format!("{id} is {}, and no call has done that: {ends:?}", task.code))
        })
        .collect()
}

/// By a cancellation, or with what it depends on.
fn is_aborted_by_others(view: &View, id: &str) -> bool {
    let parent = view.pages.parents.get(id).and_then(|parent| view.task(parent));
    view.pages.cancelled.contains(id) || parent.is_some_and(|parent| parent.code == "aborted")
}

fn is_over(view: &View) -> Vec<String> {
    let left = view.tasks().filter(|(.., task)| !["completed", "aborted"].contains(&task.code.as_str()));
    left.map(|(shard, id, task)| format!("{id} is {} on shard {shard}", task.code)).collect()
}

/// A grant that a client was told of is a try. (A move of its group does not keep how often a task was tried.)
fn tries_are_counted(view: &View) -> Vec<String> {
    let mut granted: HashMap<&str, i64> = HashMap::new();
    for id in view.pages.granted.values() {
        *granted.entry(id).or_default() += 1;
    }
    view.tasks()
        .filter(|(.., task)| task.group.is_none())
        .filter_map(|(_, id, task)| {
            let told = granted.get(id).copied().unwrap_or_default();
            (told > task.tries).then(|| format!("{id} was granted {told} times, and counts {}", task.tries))
        })
        .collect()
}

fn dependencies_are_kept(view: &View) -> Vec<String> {
    view.tasks()
        .filter_map(|(_, id, task)| {
            let parent = view.pages.parents.get(id)?;
            let kept = task.after == [parent.as_str()];
            (!kept).then(|| format!("{id} depends on {:?}, and was to depend on {parent}", task.after))
        })
        .collect()
}
