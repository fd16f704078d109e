//! Performing: tasks that are held, ready, aborted or overdue, with whatever waits for them.

use super::{Op, Rules, Scene, choosing, claim, ignoring, op, returning, upkeep};

/// Two parents in progress; what waits for both, for one, and for an abort; and a milestone.
const HELD: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "@p", "action": "@x", "max_tries": 2}, {"id": "@q", "action": "@x", "max_tries": 2},
        {"id": "@c", "action": "@y", "depends_on": ["@p", "@q"]},
        {"id": "@m", "action": "@y", "spontaneous": true, "depends_on": ["@p", "@q"]},
        {"id": "@h", "action": "@h", "depends_on": [{"id": "@p", "condition": "aborted"}]},
        {"id": "@z", "action": "@z"}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 2, '{@x}', '1 hour')",
];

fn held() -> Vec<Op> {
    vec![
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("abort p", "SELECT taskq.return_task('@p', #p, 'aborted', 'no luck')"),
        op("give p back", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0')"),
        op("give p back for later", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '1 hour')"),
        op("give p back uncounted", "SELECT taskq.return_task('@p', #p, 'pending', count_try => false)"),
        op("release p", "SELECT taskq.release_tasks('{@p}', status => 'gone')"),
        op("release both", "SELECT taskq.release_tasks('{@q,@p}', actors => '{setup}')"),
        choosing("release all x", "SELECT taskq.release_tasks(actions => '{@x}')"),
        op("complete q", "SELECT taskq.return_task('@q', #q)"),
        op("abort q", "SELECT taskq.return_task('@q', #q, 'aborted')"),
        op("complete both", "SELECT * FROM taskq.return_tasks('{@p,@q}', ARRAY[#p, #q])"),
        returning(
            "complete q, own more",
            "SELECT task_id, token, num_tries, num_failures, sqlstate \
                  FROM taskq.return_and_own_tasks('worker', '{@q}', ARRAY[#q], 1, '{@y}', '2 hours')",
            &["SELECT task_id, NULL AS token, NULL AS num_tries, NULL AS num_failures, sqlstate \
                             FROM taskq.return_tasks('{@q}', ARRAY[#q]) WHERE sqlstate IS NOT NULL"],
        ),
        op(
            "extend p",
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('other', '{@p}', ARRAY[#p], '2 hours')",
        ),
        op("report p", "SELECT taskq.report_status('@p', #p, 'half', 0.5, '{\"line\": 1}')"),
        claim("own p", own!(1, "@x")),
        claim("own c", own!(1, "@y")),
        claim("own h", own!(1, "@h")),
        op(
            "insert after p",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@p"]}]')"#,
        ),
        op(
            "insert before c",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "to_signal_after": ["@c"]}]')"#,
        ),
        op(
            "insert between",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@q"],
            "to_signal_after": ["@c"]}]', on_conflict => 'skip')"#,
        ),
        op(
            "replace c",
            r#"SELECT taskq.replace_tasks('[{"id": "@c", "action": "@y", "depends_on": ["@p"]}]')"#,
        ),
        op("replace c, free", r#"SELECT taskq.replace_tasks('[{"id": "@c", "action": "@y"}]')"#),
        op("replace p", r#"SELECT taskq.replace_tasks('[{"id": "@p", "action": "@x"}]')"#),
        op("cancel p", "SELECT taskq.cancel_tasks('{@p}')"),
        op("cancel both", "SELECT taskq.cancel_tasks('{@q,@p}')"),
        op("cancel c", "SELECT taskq.cancel_tasks('{@c}')"),
        op("delete c", "SELECT taskq.delete_tasks('{@c}')"),
        op("delete p", "SELECT taskq.delete_tasks('{@p}')"),
        op("delete m", "SELECT taskq.delete_tasks('{@m}')"),
        op("update c", "SELECT taskq.update_tasks('{@c}', priority => 5, body => 'new')"),
        op("c after z", "SELECT taskq.add_dependencies('{@z}', '{@c}')"),
        op("z after p and q", "SELECT taskq.add_dependencies('{@p,@q}', '{@z,@z}', 'settled')"),
        op("z after c", "SELECT taskq.add_dependencies('{@c}', '{@z}')"),
        op("complete c by hand", "SELECT taskq.complete_task('@c')"),
        upkeep(),
    ]
}

/// Children that a return brings along, where others insert, wait for or touch the same.
fn children() -> Vec<Op> {
    vec![
        op(
            "complete p with child k",
            r#"SELECT taskq.return_task('@p', #p, children => '[{"id": "@k", "action": "@k"}]')"#,
        ),
        op(
            "complete p with blocking k",
            r#"SELECT taskq.return_task('@p', #p, children => '[{"id": "@k", "action": "@k"}]',
            children_block => true)"#,
        ),
        op(
            "complete p with k before c",
            r#"SELECT taskq.return_task('@p', #p, children =>
            '[{"id": "@k", "action": "@k", "to_signal_after": ["@c"]}]', delay_children => '1 hour')"#,
        ),
        op(
            "complete q with blocking l",
            r#"SELECT taskq.return_task('@q', #q, children => '[{"id": "@l", "action": "@k"}]',
            children_block => true)"#,
        ),
        op(
            "abort q with child k",
            r#"SELECT taskq.return_task('@q', #q, 'aborted', children => '[{"id": "@k", "action": "@k"}]')"#,
        ),
        op(
            "complete q with k after z",
            r#"SELECT * FROM taskq.return_tasks(jsonb_build_array(jsonb_build_object('task_id', '@q',
            'token', #q, 'children', '[{"id": "@k", "action": "@k", "depends_on": ["@z"]}]'::jsonb)))"#,
        ),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("abort p", "SELECT taskq.return_task('@p', #p, 'aborted')"),
        op(
            "insert k",
            r#"SELECT taskq.insert_tasks('[{"id": "@k", "action": "@k"}]', on_conflict => 'skip')"#,
        ),
        op(
            "insert after p",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@p"]}]')"#,
        ),
        op(
            "replace k",
            r#"SELECT taskq.replace_tasks('[{"id": "@k", "action": "@k", "depends_on": ["@q"]}]')"#,
        ),
        op(
            "replace c",
            r#"SELECT taskq.replace_tasks('[{"id": "@c", "action": "@y", "depends_on": ["@p", "@q"]}]')"#,
        ),
        op("delete c", "SELECT taskq.delete_tasks('{@c}')"),
        op("cancel c", "SELECT taskq.cancel_tasks('{@c}')"),
        op("cancel p", "SELECT taskq.cancel_tasks('{@p}')"),
        op("cancel z", "SELECT taskq.cancel_tasks('{@z}')"),
        op("c after z", "SELECT taskq.add_dependencies('{@z}', '{@c}')"),
        op("update c", "SELECT taskq.update_tasks('{@c}', delay => '2 hours')"),
        claim("own c", own!(1, "@y")),
        claim("own k", own!(1, "@k")),
    ]
}

/// Ready tasks, of which one waits for another.
const READY: &[&str] = &[r#"SELECT taskq.insert_tasks('[
        {"id": "@p", "action": "@x", "max_tries": 1}, {"id": "@c", "action": "@y", "depends_on": ["@p"]},
        {"id": "@m", "action": "@y", "spontaneous": true, "depends_on": [{"id": "@c", "condition": "settled"}]}]')"#];

fn ready() -> Vec<Op> {
    vec![
        claim("own p", own!(1, "@x", "2 hours")),
        claim("own c", own!(1, "@y")),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("give p back", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0')"),
        op("release p", "SELECT taskq.release_tasks('{@p}')"),
        op(
            "extend p",
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('other', '{@p}', ARRAY[#p], '1 hour')",
        ),
        op("complete p by hand", "SELECT taskq.complete_task('@p')"),
        op("insert p", r#"SELECT taskq.insert_tasks('[{"id": "@p", "action": "@x"}]')"#),
        op(
            "insert p or skip",
            r#"SELECT * FROM taskq.insert_tasks_report('[{"id": "@p", "action": "@x"},
            {"id": "@n", "action": "@n", "depends_on": ["@p"]}]', on_conflict => 'skip')"#,
        ),
        ignoring(
            "insert n",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@p", "@o"]}]', if_missing => 'ignore')"#,
            &[
                "SELECT taskq.insert_task('@n', '@n')",
                "SELECT taskq.insert_task('@n', '@n', depends_on => '{@p}')",
            ],
        ),
        ignoring(
            "insert o",
            r#"SELECT taskq.insert_tasks('[{"id": "@o", "action": "@n", "to_signal_after": ["@n"]}]', if_missing => 'ignore')"#,
            &["SELECT taskq.insert_task('@o', '@n')"],
        ),
        op(
            "insert before p",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "to_signal_after": ["@p"]}]')"#,
        ),
        op("replace p", r#"SELECT taskq.replace_tasks('[{"id": "@p", "action": "@x", "body": "new"}]')"#),
        op(
            "replace p and c",
            r#"SELECT taskq.replace_tasks('[{"id": "@c", "action": "@y", "depends_on": ["@p"]},
            {"id": "@p", "action": "@x"}]')"#,
        ),
        op(
            "replace n",
            r#"SELECT taskq.replace_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@c"]}]')"#,
        ),
        op("cancel p", "SELECT taskq.cancel_tasks('{@p}', 'enough')"),
        choosing("cancel all x", "SELECT taskq.cancel_tasks(actions => '{@x,@y}')"),
        op("delete p", "SELECT taskq.delete_tasks('{@p}')"),
        op("delete c", "SELECT taskq.delete_tasks('{@c}')"),
        op("update p", "SELECT taskq.update_tasks('{@p}', priority => 3, max_tries => 4)"),
        op("put p off", "SELECT taskq.update_tasks('{@p,@c}', delay => '1 hour')"),
        op("retry p", "SELECT taskq.retry_tasks('{@p}')"),
        ignoring(
            "p after n",
            "SELECT taskq.add_dependencies('{@n}', '{@p}', if_missing => 'ignore')",
            &["SELECT 0"],
        ),
        op("pause x", "SELECT taskq.pause_action('@x')"),
        op("resume x", "SELECT taskq.resume_action('@x')"),
        op("forget x", "SELECT taskq.forget_action('@x')"),
        op("set x", "SELECT taskq.set_action('@x', max_concurrency => 1, lease => '1 hour')"),
        upkeep(),
    ]
}

/// An abort and what it has brought down.
const ABORTED: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "@p", "action": "@x"}, {"id": "@q", "action": "@z"},
        {"id": "@c", "action": "@y", "depends_on": ["@p", "@q"]},
        {"id": "@d", "action": "@y", "depends_on": ["@c"]},
        {"id": "@s", "action": "@s", "depends_on": [{"id": "@p", "condition": "settled"}, "@q"]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@z}', '1 hour')",
    "SELECT taskq.cancel_tasks('{@p}', 'out of memory')",
];

fn aborted() -> Vec<Op> {
    vec![
        op("retry p", "SELECT taskq.retry_tasks('{@p}')"),
        op("retry c", "SELECT taskq.retry_tasks('{@c}')"),
        choosing("retry by action", "SELECT taskq.retry_tasks(actions => '{@x,@y}')"),
        op("replace p", r#"SELECT taskq.replace_tasks('[{"id": "@p", "action": "@x"}]')"#),
        op(
            "replace c",
            r#"SELECT taskq.replace_tasks('[{"id": "@c", "action": "@y", "depends_on": ["@p", "@q"]}]')"#,
        ),
        op("delete p", "SELECT taskq.delete_tasks('{@p}')"),
        op("delete c", "SELECT taskq.delete_tasks('{@c}')"),
        op("cancel s", "SELECT taskq.cancel_tasks('{@s}')"),
        op("complete p by hand", "SELECT taskq.complete_task('@p')"),
        op("complete q", "SELECT taskq.return_task('@q', #q)"),
        op("abort q", "SELECT taskq.return_task('@q', #q, 'aborted')"),
        op(
            "insert after p",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on":
            [{"id": "@p", "condition": "aborted"}, "@q"]}]')"#,
        ),
        op("s after d", "SELECT taskq.add_dependencies('{@d}', '{@s}', 'settled')"),
        op("update s", "SELECT taskq.update_tasks('{@s}', body => 'new')"),
        claim("own p", own!(1, "@x")),
        claim("own s", own!(1, "@s")),
        upkeep(),
    ]
}

/// Deadlines that have passed: of one that has another try, of one that has none, and what waits for both.
const LATE: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "@p", "action": "@x", "max_tries": 2}, {"id": "@q", "action": "@z", "max_tries": 1},
        {"id": "@c", "action": "@y", "depends_on": ["@p"]},
        {"id": "@s", "action": "@s", "depends_on": [{"id": "@q", "condition": "settled"}]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@z}', '1 hour')",
    "SELECT task_id, owned FROM taskq.extend_tasks_ownership('setup', '{@p,@q}', ARRAY[#p, #q], '0')",
];

fn late() -> Vec<Op> {
    vec![
        claim("own p", own!(1, "@x", "1 hour")),
        claim("own q", own!(1, "@z", "1 hour")),
        claim("own s", own!(1, "@s", "1 hour")),
        upkeep(),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("give p back", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0')"),
        op("give p back uncounted", "SELECT taskq.return_task('@p', #p, 'pending', count_try => false)"),
        op("release both", "SELECT taskq.release_tasks('{@q,@p}')"),
        op("complete q", "SELECT taskq.return_task('@q', #q)"),
        op("complete both", "SELECT * FROM taskq.return_tasks('{@p,@q}', ARRAY[#p, #q])"),
        op(
            "extend p",
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('other', '{@p}', ARRAY[#p], '1 hour')",
        ),
        op(
            "extend q",
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('other', '{@q}', ARRAY[#q], '1 hour')",
        ),
        op("report p", "SELECT taskq.report_status('@p', #p, 'half', 0.5)"),
        op("cancel p", "SELECT taskq.cancel_tasks('{@p}')"),
        op("cancel q", "SELECT taskq.cancel_tasks('{@q}')"),
        op(
            "insert after q",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@q"]}]')"#,
        ),
        op(
            "insert after p",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@p"]}]')"#,
        ),
        op("delete c", "SELECT taskq.delete_tasks('{@c}')"),
        op(
            "replace s",
            r#"SELECT taskq.replace_tasks('[{"id": "@s", "action": "@s", "depends_on": ["@q"]}]')"#,
        ),
    ]
}

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene { name: "held", setup: HELD, ops: held(), rules: Rules::Serial },
        Scene { name: "children", setup: HELD, ops: children(), rules: Rules::Serial },
        Scene { name: "ready", setup: READY, ops: ready(), rules: Rules::Serial },
        Scene { name: "aborted", setup: ABORTED, ops: aborted(), rules: Rules::Serial },
        Scene { name: "late", setup: LATE, ops: late(), rules: Rules::Upkeep },
    ]
}
