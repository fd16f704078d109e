//! Flow control: slots of actions and groups, pauses, workgroups, schedules.

use super::{Op, Rules, Scene, choosing, claim, claiming, counting, op, returning, upkeep};

/// A limit of one, used up.
const LIMIT: &[&str] = &[
    "SELECT taskq.set_action('@x', max_concurrency => 1)",
    r#"SELECT taskq.insert_tasks('[{"id": "@p", "action": "@x"}, {"id": "@q", "action": "@x"}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
];

/// The same, and the deadline has passed.
const LIMIT_LATE: &[&str] = &[
    "SELECT taskq.set_action('@x', max_concurrency => 1)",
    r#"SELECT taskq.insert_tasks('[{"id": "@p", "action": "@x", "max_tries": 1}, {"id": "@q", "action": "@x"}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '0')",
];

fn limit() -> Vec<Op> {
    vec![
        claim("own one", own!(1, "@x", "1 hour")),
        claim("own all", own!(5, "@x", "1 hour")),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("give p back", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0')"),
        op("release p", "SELECT taskq.release_tasks('{@p}')"),
        returning(
            "complete p, own q",
            "SELECT task_id, token, num_tries, num_failures, sqlstate \
                  FROM taskq.return_and_own_tasks('worker', '{@p}', ARRAY[#p], 1, '{@x}', '1 hour')",
            &["SELECT task_id, NULL AS token, NULL AS num_tries, NULL AS num_failures, sqlstate \
                             FROM taskq.return_tasks('{@p}', ARRAY[#p]) WHERE sqlstate IS NOT NULL"],
        ),
        op(
            "extend p",
            "SELECT task_id, owned FROM taskq.extend_tasks_ownership('other', '{@p}', ARRAY[#p], '2 hours')",
        ),
        op("cancel p", "SELECT taskq.cancel_tasks('{@p}')"),
        op("cancel q", "SELECT taskq.cancel_tasks('{@q}')"),
        op("delete q", "SELECT taskq.delete_tasks('{@q}')"),
        op("two places", "SELECT taskq.set_action('@x', max_concurrency => 2)"),
        op("no limit", "SELECT taskq.set_action('@x', clear => '{max_concurrency}')"),
        op("one place", "SELECT taskq.set_action('@x', max_concurrency => 1)"),
        op("pause x", "SELECT taskq.pause_action('@x')"),
        op("resume x", "SELECT taskq.resume_action('@x')"),
        op("insert n", "SELECT taskq.insert_task('@n', '@x')"),
        upkeep(),
    ]
}

/// A group of every state, with a limit that is used up, in an action that limits its groups.
const GROUP: &[&str] = &[
    "SELECT taskq.set_group('@g', max_concurrency => 1)",
    r#"SELECT taskq.insert_tasks('[
        {"id": "@a", "action": "@x", "group_id": "@g"},
        {"id": "@p", "action": "@x", "group_id": "@g", "seed": true}, {"id": "@q", "action": "@x", "group_id": "@g"},
        {"id": "@c", "action": "@y", "group_id": "@g", "seed": true, "depends_on": ["@p"]},
        {"id": "@d", "action": "@y", "depends_on": ["@a"], "group_id": "@g"},
        {"id": "@e", "action": "@z", "depends_on": [{"id": "@a", "condition": "settled"}, "@c"]}]')"#,
    "SELECT taskq.cancel_tasks('{@a}', 'no luck')",
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
];

fn group() -> Vec<Op> {
    vec![
        counting("pause g", "SELECT taskq.pause_group('@g')"),
        op("resume g", "SELECT taskq.resume_group('@g')"),
        choosing("cancel g", "SELECT taskq.cancel_group('@g')"),
        choosing("delete g", "SELECT taskq.delete_group('@g')"),
        choosing("retry g", "SELECT taskq.retry_group('@g')"),
        choosing("reset g", "SELECT taskq.reset_group('@g')"),
        op("two places", "SELECT taskq.set_group('@g', max_concurrency => 2)"),
        op("no limit", "SELECT taskq.set_group('@g', clear => '{max_concurrency}')"),
        op("one for each group", "SELECT taskq.set_action('@x', max_per_group => 1)"),
        op("insert n", "SELECT taskq.insert_task('@n', '@x', group_id => '@g')"),
        op(
            "insert n after p",
            "SELECT taskq.insert_task('@n', '@n', group_id => '@g', depends_on => '{@p}')",
        ),
        claim("own one", own!(1, "@x", "1 hour")),
        claim("own c", own!(1, "@y", "1 hour")),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("abort p", "SELECT taskq.return_task('@p', #p, 'aborted')"),
        op(
            "complete p with child",
            r#"SELECT taskq.return_task('@p', #p, children => '[{"id": "@n", "action": "@x", "group_id": "@g"}]',
            children_block => true)"#,
        ),
        op("cancel q", "SELECT taskq.cancel_tasks('{@q}')"),
        op("retry a", "SELECT taskq.retry_tasks('{@a}')"),
        op("delete q", "SELECT taskq.delete_tasks('{@q}')"),
        op("replace q", r#"SELECT taskq.replace_tasks('[{"id": "@q", "action": "@x", "group_id": "@g"}]')"#),
        op("replace q, no group", r#"SELECT taskq.replace_tasks('[{"id": "@q", "action": "@x"}]')"#),
        op("e after q", "SELECT taskq.add_dependencies('{@q}', '{@e}')"),
        upkeep(),
    ]
}

/// A group that is paused, and one of it parked.
const PAUSED: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[{"id": "@p", "action": "@x", "group_id": "@g"}, {"id": "@q", "action": "@x", "group_id": "@g"},
        {"id": "@c", "action": "@y", "group_id": "@g", "depends_on": ["@p"]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
    "SELECT taskq.pause_group('@g')",
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
];

fn paused() -> Vec<Op> {
    vec![
        op("resume g", "SELECT taskq.resume_group('@g')"),
        counting("pause g", "SELECT taskq.pause_group('@g')"),
        choosing("cancel g", "SELECT taskq.cancel_group('@g')"),
        choosing("reset g", "SELECT taskq.reset_group('@g')"),
        op("cancel q", "SELECT taskq.cancel_tasks('{@q}')"),
        op("delete q", "SELECT taskq.delete_tasks('{@q}')"),
        op("update q", "SELECT taskq.update_tasks('{@q}', priority => 1)"),
        op("replace q", r#"SELECT taskq.replace_tasks('[{"id": "@q", "action": "@x", "group_id": "@g"}]')"#),
        op("q after c", "SELECT taskq.add_dependencies('{@c}', '{@q}')"),
        op("complete q by hand", "SELECT taskq.complete_task('@q')"),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("give p back", "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0')"),
        op("insert n", "SELECT taskq.insert_task('@n', '@x', group_id => '@g')"),
        op("two places", "SELECT taskq.set_group('@g', max_concurrency => 2)"),
    ]
}

const WORKGROUP: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[{"id": "@p", "action": "@x", "workgroup": "@w"}, {"id": "@q", "action": "@x", "workgroup": "@w"},
        {"id": "@c", "action": "@y", "workgroup": "@w", "depends_on": ["@p"]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@x}', '1 hour')",
];

fn workgroup() -> Vec<Op> {
    vec![
        op("delay w", "SELECT 1 FROM taskq.delay_workgroup('@w', '1 hour')"),
        op("delay w longer", "SELECT 1 FROM taskq.delay_workgroup('@w', '2 hours')"),
        op("delay w no more", "SELECT 1 FROM taskq.delay_workgroup('@w', '0')"),
        op("complete p, delaying", "SELECT taskq.return_task('@p', #p, delay_workgroup => '1 hour')"),
        op(
            "give p back, delaying",
            "SELECT taskq.return_task('@p', #p, 'pending', retry_after => '0', delay_workgroup => '2 hours')",
        ),
        op("complete p", "SELECT taskq.return_task('@p', #p)"),
        op("insert n", "SELECT taskq.insert_task('@n', '@x', workgroup => '@w')"),
        claiming(
            "own q",
            "SELECT task_id, token, num_tries, num_failures FROM taskq.own_tasks('worker', 1, '{@x}')",
            // Or what comes behind it.
            &[
                "",
                "DO $$BEGIN PERFORM taskq.update_tasks('{@q}', priority => -1); END$$; \
                 SELECT task_id, token, num_tries, num_failures FROM taskq.own_tasks('worker', 1, '{@x}'); \
                 DO $$BEGIN PERFORM taskq.update_tasks('{@q}', priority => 0); END$$",
            ],
        ),
        op("cancel q", "SELECT taskq.cancel_tasks('{@q}')"),
        op("update q", "SELECT taskq.update_tasks('{@q}', delay => '0')"),
        op("replace q", r#"SELECT taskq.replace_tasks('[{"id": "@q", "action": "@x", "workgroup": "@w"}]')"#),
    ]
}

const SCHEDULE: &[&str] =
    &[r#"SELECT taskq.schedule('@s', '0 0 1 1 *', '{"action": "@x"}', overlap => 'skip')"#];

fn schedule() -> Vec<Op> {
    vec![
        op("run s", "SELECT 1 FROM taskq.run_schedule('@s')"),
        op("pause s", "SELECT taskq.pause_schedule('@s')"),
        op("resume s", "SELECT taskq.resume_schedule('@s')"),
        op("drop s", "SELECT taskq.unschedule('@s')"),
        op("set s anew", r#"SELECT 1 FROM taskq.schedule('@s', '0 0 2 1 *', '{"action": "@y"}')"#),
        upkeep(),
        op("forget x", "SELECT taskq.forget_action('@x')"),
    ]
}

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene { name: "limit", setup: LIMIT, ops: limit(), rules: Rules::Serial },
        Scene { name: "limit, late", setup: LIMIT_LATE, ops: limit(), rules: Rules::Upkeep },
        Scene { name: "group", setup: GROUP, ops: group(), rules: Rules::Serial },
        Scene { name: "paused", setup: PAUSED, ops: paused(), rules: Rules::Serial },
        Scene { name: "workgroup", setup: WORKGROUP, ops: workgroup(), rules: Rules::Serial },
        Scene { name: "schedule", setup: SCHEDULE, ops: schedule(), rules: Rules::Serial },
    ]
}
