//! Calls that sleep, and how soon they wake.

use std::time::{Duration, Instant};

use crate::{Background, Db, Session, let_databases_stay};

/// Below the 5 seconds, less up to a quarter, after which a sleeper looks unwoken where transactions can be prepared (see
/// `longest_sleep`): a sleeper that is faster was woken. It is measured from the moment after the sleeper fell asleep.
pub const PROMPT: Duration = Duration::from_secs(3);

/// The two ways to wait for tasks of action x, and whether they end with something to do.
pub const WORK: [Way; 2] = [
    Way {
        name: "own_tasks",
        call: "SELECT count(*) > 0 FROM taskq.own_tasks('w', 1, '{x}', wait => '60 seconds')",
    },
    Way { name: "wait_for_work", call: "CALL taskq.wait_for_work('{x}', '60 seconds', NULL)" },
];

/// The two ways to wait for the end of task a.
pub const END: [Way; 2] = [
    Way { name: "wait_for_task", call: "SELECT count(*) > 0 FROM taskq.wait_for_task('a', '60 seconds')" },
    Way { name: "wait_for_tasks", call: "CALL taskq.wait_for_tasks('{a}', '60 seconds', NULL)" },
];

/// A way to wait.
#[derive(Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    pub call: &'static str,
}

/// A call under way that sleeps.
pub struct Sleeper {
    way: Way,
    call: Background<(Result<String, postgres::Error>, Instant)>,
    asleep_since: Instant,
}

impl Sleeper {
    /// Starts the call on a connection of its own; it is asleep when this returns.
    pub fn start(db: &Db, watcher: &mut Session, way: Way) -> Sleeper {
        Self::start_in(db.connect(), watcher, way)
    }

    /// The same on a given connection.
    pub fn start_in(session: Session, watcher: &mut Session, way: Way) -> Sleeper {
        let_databases_stay();
        let call = session.background(move |session| {
            let answer = session.simple_query(way.call).map(|messages| value(&messages));
            (answer, Instant::now())
        });
        watcher.until_asleep(call.pid());
        Sleeper { way, call, asleep_since: Instant::now() }
    }

    /// The process id of the backend.
    pub fn pid(&self) -> i32 {
        self.call.pid()
    }

    /// The answer, which must be the one of success and have come promptly after `what`.
    pub fn woken_by(self, what: &str) -> Session {
        let since = self.asleep_since;
        self.woken_soon_after(since, what)
    }

    /// The same, with a moment after which it must have come promptly.
    pub fn woken_soon_after(self, since: Instant, what: &str) -> Session {
        let way = self.way.name;
        let (session, (answer, at)) = self.call.join();
        let answer = answer.unwrap_or_else(|error| panic!("{way}, {what}: {error:?}"));
        assert!(answer == "t" || answer == "1", "{way}, {what}: ended with {answer}");
        let slept = at - since;
        assert!(slept < PROMPT, "{way} was not woken by {what}, but looked after {slept:?}");
        session
    }

    /// The SQLSTATE of the error that the call ends with (none if the connection is lost), and how soon.
    pub fn fails(self) -> (Session, Option<String>, Duration) {
        let since = self.asleep_since;
        let (session, (answer, at)) = self.call.join();
        let error = answer.expect_err("the sleep ends with an error");
        (session, error.code().map(|code| code.code().to_owned()), at - since)
    }
}

fn value(messages: &[postgres::SimpleQueryMessage]) -> String {
    messages
        .iter()
        .find_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
        .unwrap_or_default()
}

/// How often a process has gone to sleep of its own accord since it began.
#[cfg(target_os = "linux")]
pub fn times_asleep(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|n| n.trim().parse().ok()).expect("the system counts that")
}
