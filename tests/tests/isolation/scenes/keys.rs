//! Keys: tasks that are unique by one, and tasks that are merged by one.

use super::{Op, Rules, Scene, choosing, claim, counting, ignoring, op, upkeep};

/// A key whose task waits.
const UNIQUE: &[&str] = &[r#"SELECT taskq.insert_tasks('[
        {"id": "@u", "action": "@x", "unique_by": {"key": "@k", "states": ["pending"]}},
        {"id": "@c", "action": "@y", "depends_on": ["@u"]}]')"#];

/// A key whose task is in progress.
const UNIQUE_HELD: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "@u", "action": "@x", "unique_by": "@k"}, {"id": "@c", "action": "@y", "depends_on": ["@u"]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
];

fn unique() -> Vec<Op> {
    vec![
        op(
            "insert v or skip",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@v", "action": "@x", "unique_by": "@k"}]')"#,
        ),
        op(
            "insert w or skip",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@w", "action": "@x",
            "unique_by": {"key": "@k", "states": ["pending"]}}]')"#,
        ),
        op(
            "insert v, replacing",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@v", "action": "@x",
            "unique_by": {"key": "@k", "on_conflict": "replace"}}]')"#,
        ),
        op(
            "insert w, replacing",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@w", "action": "@x", "delay": "1 hour",
            "unique_by": {"key": "@k", "on_conflict": "replace", "max_wait": "2 hours"}}]')"#,
        ),
        op(
            "insert v or fail",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@v", "action": "@x",
            "unique_by": {"key": "@k", "on_conflict": "error"}}]')"#,
        ),
        op(
            "insert v and n after it",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@v", "action": "@x", "unique_by": "@k"},
            {"id": "@n", "action": "@n", "depends_on": ["@v"]}]')"#,
        ),
        ignoring(
            "insert n after u",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@n", "action": "@n", "depends_on": ["@u"]}]',
            if_missing => 'ignore')"#,
            &["SELECT * FROM taskq.insert_tasks_report('[{\"id\": \"@n\", \"action\": \"@n\"}]')"],
        ),
        op(
            "insert other key too",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@o", "action": "@x", "unique_by": "@l"},
            {"id": "@v", "action": "@x", "unique_by": "@k"}]')"#,
        ),
        op(
            "insert both keys",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@w", "action": "@x", "unique_by":
            {"key": "@k", "on_conflict": "replace"}}, {"id": "@i", "action": "@x", "unique_by": {"key": "@l", "on_conflict": "replace"}}]')"#,
        ),
        claim("own u", own!(1, "@x")),
        op("complete u", "SELECT taskq.return_task('@u', #u)"),
        op("abort u", "SELECT taskq.return_task('@u', #u, 'aborted')"),
        op("give u back", "SELECT taskq.return_task('@u', #u, 'pending', retry_after => '0')"),
        op(
            "complete u with child v",
            r#"SELECT taskq.return_task('@u', #u,
            children => '[{"id": "@v", "action": "@x", "unique_by": "@k"}]')"#,
        ),
        op("cancel u", "SELECT taskq.cancel_tasks('{@u}')"),
        op("delete u", "SELECT taskq.delete_tasks('{@u}')"),
        op("replace u", r#"SELECT taskq.replace_tasks('[{"id": "@u", "action": "@x", "unique_by": "@k"}]')"#),
        op("replace u, without key", r#"SELECT taskq.replace_tasks('[{"id": "@u", "action": "@x"}]')"#),
        op("retry u", "SELECT taskq.retry_tasks('{@u}')"),
        op("complete u by hand", "SELECT taskq.complete_task('@u')"),
        op("update u", "SELECT taskq.update_tasks('{@u}', priority => 2)"),
    ]
}

/// One with the key runs, and one rides on it; another one came later.
const MERGE: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "@p", "action": "@x", "merge_key": "@k", "group_id": "@g"},
        {"id": "@r", "action": "@x", "merge_key": "@k", "group_id": "@g"},
        {"id": "@c", "action": "@y", "depends_on": ["@r"]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 10, '{@x}', '1 hour')",
    r#"SELECT taskq.insert_task('@l', '@x', merge_key => '@k', group_id => '@g')"#,
];

/// No task with the key runs.
const MERGE_READY: &[&str] = &[r#"SELECT taskq.insert_tasks('[
        {"id": "@p", "action": "@x", "merge_key": "@k", "group_id": "@g"},
        {"id": "@r", "action": "@x", "merge_key": "@k", "group_id": "@g"},
        {"id": "@c", "action": "@y", "depends_on": ["@r"]}]')"#];

fn merge() -> Vec<Op> {
    vec![
        op("complete p", "SELECT taskq.return_task('@p', #p, result => '7')"),
        op("abort p", "SELECT taskq.return_task('@p', #p, 'aborted', 'no luck')"),
        op("give p back", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0')"),
        op("give p back uncounted", "SELECT taskq.return_task('@p', #p, 'pending', count_try => false)"),
        op("release p", "SELECT taskq.release_tasks('{@p}')"),
        op(
            "extend p",
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('other', '{@p}', ARRAY[#p], '2 hours')",
        ),
        claim("own one", own!(1, "@x")),
        claim("own all", own!(10, "@x")),
        op("insert n", r#"SELECT taskq.insert_task('@n', '@x', merge_key => '@k', group_id => '@g')"#),
        op("insert n after r", r#"SELECT taskq.insert_task('@n', '@n', depends_on => '{@r}')"#),
        op("cancel p", "SELECT taskq.cancel_tasks('{@p}')"),
        op("cancel r", "SELECT taskq.cancel_tasks('{@r}')"),
        op("delete r", "SELECT taskq.delete_tasks('{@r}')"),
        op("delete p", "SELECT taskq.delete_tasks('{@p}')"),
        op(
            "replace r",
            r#"SELECT taskq.replace_tasks('[{"id": "@r", "action": "@x", "merge_key": "@k", "group_id": "@g"}]')"#,
        ),
        op("replace p, without key", r#"SELECT taskq.replace_tasks('[{"id": "@p", "action": "@x"}]')"#),
        op("update r", "SELECT taskq.update_tasks('{@r}', priority => 4)"),
        op("r after n", "SELECT taskq.add_dependencies('{@z}', '{@r}', if_missing => 'ignore')"),
        op("complete r by hand", "SELECT taskq.complete_task('@r')"),
        counting("pause g", "SELECT taskq.pause_group('@g')"),
        op("resume g", "SELECT taskq.resume_group('@g')"),
        choosing("reset g", "SELECT taskq.reset_group('@g')"),
        choosing("cancel g", "SELECT taskq.cancel_group('@g')"),
        choosing("retry g", "SELECT taskq.retry_group('@g')"),
        upkeep(),
    ]
}

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene { name: "unique", setup: UNIQUE, ops: unique(), rules: Rules::Serial },
        Scene { name: "unique, held", setup: UNIQUE_HELD, ops: unique(), rules: Rules::Serial },
        Scene { name: "merge", setup: MERGE, ops: merge(), rules: Rules::Riders },
        Scene { name: "merge, ready", setup: MERGE_READY, ops: merge(), rules: Rules::Riders },
    ]
}
