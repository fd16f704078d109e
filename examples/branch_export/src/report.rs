//! The monitoring views, as psql prints them.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::args::Args;

/// What the queue looks like in the middle of things.
pub const MIDDLE: &str = r#"
\echo
\echo who holds what (taskq.actors):
SELECT actor_id, task_id, action_deadline, overdue FROM taskq.actors ORDER BY actor_id, task_id LIMIT 20;
\echo the branch:
SELECT id, state, num_signals, total_dependencies FROM taskq.tasks
 WHERE id IN ('next-export-' || :'branch', 'start-export-' || :'branch', 'done-export-' || :'branch') ORDER BY id;
"#;

/// What it looks like in the end.
pub const FINAL: &str = r#"
\echo
\echo taskq.stats:
SELECT action, blocked, ready, in_progress, completed, aborted, waiting_p50, running_p50, running_p99
  FROM taskq.stats ORDER BY action;
\echo the branch, and the marks and the manifest of its last export (taskq.tasks):
SELECT id, state, status, num_tries, num_signals || '/' || total_dependencies AS signals, actor_id
  FROM taskq.tasks
 WHERE id IN ('next-export-' || :'branch', 'start-export-' || :'branch', 'done-export-' || :'branch')
    OR action IN ('mark-success', 'write-manifest') AND strpos(id, :'tag') > 0
 ORDER BY action, id LIMIT 16;
\echo what the manifest and the mark at the root have waited for (taskq.dependencies):
SELECT * FROM taskq.dependencies
 WHERE run IN (concat_ws('-', 'write-manifest', :'branch', :'tag'),
               concat_ws('-', 'mark-success', :'branch', :'tag', '_SUCCESS'))
 ORDER BY run DESC, after LIMIT 12;
\echo no worker holds anything any more (taskq.actors):
SELECT * FROM taskq.actors;
"#;

/// Runs a script in psql, on the same database.
pub fn psql(args: &Args, variables: &[(&str, &str)], script: &str) -> Result<()> {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--pset=pager=off"]);
    for (name, value) in variables {
        command.arg(format!("--set={name}={value}"));
    }
    if let Some(url) = &args.url {
        command.args(["--dbname", url]);
    }
    std::io::stdout().flush()?;
    let mut child = command.stdin(Stdio::piped()).spawn().context("cannot run psql to print the views")?;
    child.stdin.take().context("psql has no input")?.write_all(script.as_bytes())?;
    ensure!(child.wait()?.success(), "psql could not print the monitoring views");
    Ok(())
}
