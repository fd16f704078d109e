//! Edges: which task may be put before or after which, while another call does the same the other way round.

use super::{Op, Rules, Scene, claim, ignoring, op};

const EDGES: &[&str] = &[r#"SELECT taskq.insert_tasks('[
        {"id": "@a", "action": "@a"}, {"id": "@b", "action": "@b"}, {"id": "@c", "action": "@c"},
        {"id": "@d", "action": "@d", "depends_on": ["@c"]}]')"#];

fn edges() -> Vec<Op> {
    vec![
        op("a before b", "SELECT taskq.add_dependencies('{@a}', '{@b}')"),
        op("b before a", "SELECT taskq.add_dependencies('{@b}', '{@a}')"),
        op("a settled before b", "SELECT taskq.add_dependencies('{@a}', '{@b}', 'settled')"),
        op("b before c", "SELECT taskq.add_dependencies('{@b}', '{@c}')"),
        op("d before a", "SELECT taskq.add_dependencies('{@d}', '{@a}')"),
        op(
            "insert b to n to a",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@b"],
            "to_signal_after": ["@a"]}]')"#,
        ),
        op(
            "insert a to o to b",
            r#"SELECT taskq.insert_tasks('[{"id": "@o", "action": "@n", "depends_on": ["@a"],
            "to_signal_after": ["@b"]}]')"#,
        ),
        ignoring(
            "insert n after o",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@o"]}]', if_missing => 'ignore')"#,
            &["SELECT taskq.insert_task('@n', '@n')"],
        ),
        ignoring(
            "insert o after n",
            r#"SELECT taskq.insert_tasks('[{"id": "@o", "action": "@n", "depends_on": ["@n"]}]', if_missing => 'ignore')"#,
            &["SELECT taskq.insert_task('@o', '@n')"],
        ),
        op(
            "replace a after b",
            r#"SELECT taskq.replace_tasks('[{"id": "@a", "action": "@a", "depends_on": ["@b"]}]')"#,
        ),
        op(
            "replace b after a",
            r#"SELECT taskq.replace_tasks('[{"id": "@b", "action": "@b", "depends_on": ["@a"]}]')"#,
        ),
        op(
            "replace c before a",
            r#"SELECT taskq.replace_tasks('[{"id": "@c", "action": "@c", "to_signal_after": ["@a"]}]')"#,
        ),
        claim("own a", own!(1, "@a")),
        claim("own c", own!(1, "@c")),
        op("complete a by hand", "SELECT taskq.complete_task('@a')"),
        op("complete c by hand", "SELECT taskq.complete_task('@c')"),
        op("cancel a", "SELECT taskq.cancel_tasks('{@a}')"),
        op("cancel c and b", "SELECT taskq.cancel_tasks('{@c,@b}')"),
        op("delete a", "SELECT taskq.delete_tasks('{@a}')"),
        op("delete c", "SELECT taskq.delete_tasks('{@c}')"),
        op("delete b and c", "SELECT taskq.delete_tasks('{@b,@c}')"),
        op("retry a", "SELECT taskq.retry_tasks('{@a,@b}')"),
    ]
}

/// What a branch export does: the chain of one round, of which the worker has the last link.
const EXPORT: &[&str] = &[
    r#"SELECT taskq.insert_tasks('[
        {"id": "@next-export", "action": "@export"},
        {"id": "@done-export", "action": "@done", "spontaneous": true, "depends_on": ["@next-export"]},
        {"id": "@tell", "action": "@tell", "depends_on": [{"id": "@done-export", "condition": "settled"}]}]')"#,
    "SELECT task_id, token FROM taskq.own_tasks('setup', 1, '{@export}', '1 hour')",
];

fn export() -> Vec<Op> {
    vec![
        op(
            "replace done-export",
            r#"SELECT taskq.replace_tasks('[{"id": "@done-export", "action": "@done",
            "spontaneous": true, "depends_on": ["@next-export"]}]')"#,
        ),
        op(
            "replace done-export, free",
            r#"SELECT taskq.replace_tasks('[{"id": "@done-export", "action": "@done"}]')"#,
        ),
        op("return next-export", "SELECT taskq.return_task('@next-export', #next-export)"),
        op(
            "give next-export back",
            "SELECT taskq.return_task('@next-export', #next-export, 'pending', retry_after => '0')",
        ),
        op(
            "replace next-export",
            r#"SELECT taskq.replace_tasks('[{"id": "@next-export", "action": "@export"}]')"#,
        ),
        op(
            "insert next-export",
            r#"SELECT taskq.insert_tasks('[{"id": "@next-export", "action": "@export"}]', on_conflict => 'skip')"#,
        ),
        op(
            "replace both",
            r#"SELECT taskq.replace_tasks('[{"id": "@next-export", "action": "@export"},
            {"id": "@done-export", "action": "@done", "depends_on": ["@next-export"]}]')"#,
        ),
        claim("own export", own!(1, "@export")),
        claim("own done", own!(1, "@done")),
        op("cancel next-export", "SELECT taskq.cancel_tasks('{@next-export}')"),
        op(
            "insert after done-export",
            r#"SELECT taskq.insert_tasks('[{"id": "@n", "action": "@n", "depends_on": ["@done-export"]}]')"#,
        ),
        op("tell after next-export", "SELECT taskq.add_dependencies('{@next-export}', '{@tell}')"),
    ]
}

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene { name: "edges", setup: EDGES, ops: edges(), rules: Rules::Serial },
        Scene { name: "export", setup: EXPORT, ops: export(), rules: Rules::Serial },
    ]
}
