//! Exports the files of a git commit into a bucket, with taskq: one task per object, four worker processes, and
//! two accidents on purpose.
//!
//! The job is lakeFS's *branch export*. A branch `main` gets these tasks:
//!
//! ```text
//!   next-export-main ──> start-export-main ──> done-export-main ──> manifest
//!    (a commit came)       │ plans the rest      ▲ (spontaneous)       ▲
//!                          ├─> copy   src/a.rs ──┤                     │
//!                          ├─> copy   src/b.rs ──┤                     │
//!                          ├─> delete old/c.rs ──┤                     │
//!                          ├─> src/_SUCCESS ─────┤ after src/a.rs, src/b.rs
//!                          └─> _SUCCESS ─────────┴─────────────────────┘ after everything, through src/_SUCCESS
//! ```
//!
//! - The *committer* ([`commit`]) replaces `next-export-main` by one that waits for `done-export-main`, if there is
//!   one: however many commits arrive during an export, they cost one more export, which starts when the bucket is
//!   quiet. Where `next-export-main` is just being performed (`TQ005`) it tries again.
//! - The worker that performs `next-export-main` creates `start-export-main` and `done-export-main` in the transaction
//!   that returns it, so there is no moment at which a committer could find neither.
//! - The worker that performs `start-export-main` compares the commit with the bucket and inserts the tasks of the
//!   export ([`plan`]), with dependencies into the blocked `done-export-main`, in the transaction that returns it.
//! - Objects count into `done-export-main` on the condition `settled`: it means that no worker touches the bucket any
//!   more. That an export is *whole* is what `_SUCCESS` says: those wait for `completed`.
//!
//! What makes this safe is written where it is done, in [`worker`] and [`lease`]: what a task changes in the database
//! is changed in the transaction that returns it; what it changes in the bucket may be done twice.
//!
//! The process that is started ([`demo`]) is committer, supervisor and judge in one: it starts the workers (this
//! same program, over connections of their own), kills one with SIGKILL while it holds tasks, lets a second commit
//! arrive in mid-export, and compares everything in the end with what git says ([`verify`]).

mod args;
mod bucket;
mod commit;
mod demo;
mod fleet;
mod git;
mod keys;
mod lease;
mod ledger;
mod plan;
mod progress;
mod queue;
mod report;
mod scratch;
mod tasks;
mod verify;
mod worker;

use std::process::ExitCode;

use args::{Args, Mode};

fn main() -> ExitCode {
    let outcome = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => match args.mode {
            Mode::Help => {
                println!("{}", args::USAGE);
                Ok(())
            }
            Mode::Demo => demo::run(&args),
            Mode::Worker => worker::run(&args),
        },
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("branch_export: {error:#}");
            ExitCode::FAILURE
        }
    }
}
