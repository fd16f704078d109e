//! A session that cannot have the memory it needs. Rust's answer to a failed allocation is `abort()`: the postmaster takes
//! that for a crash, and every session of the cluster is lost with it. Only the one that asked for too much may end.

use taskq_tests::{Db, Session};

/// Lets a backend have so many bytes of address space more than it has. The limit is set by a program of the server's own
/// user, who may.
fn limit(witness: &mut Session, pid: i32, more: u64) {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).expect("a process of this machine");
    let pages: u64 = statm.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number of pages");
    let limit = pages * 4096 + more;
    witness.run(&format!("COPY (SELECT 1) TO PROGRAM 'cat >/dev/null && prlimit --pid {pid} --as={limit}'"));
}

#[test]
#[ignore = "long"]
fn without_memory_only_the_session_that_needs_it_ends() {
    let (db, [mut witness]) = Db::connected();
    let witness_pid = witness.pid();
    let call = "SELECT length(taskq.map('x', jsonb_build_array(repeat('z', 20000000)))::text)";
    let (mut ended, mut refused, mut worked) = (0, 0, 0);
    // How far it gets differs: what fails is an allocation of PostgreSQL's or one of ours.
    for more in (1..=24).map(|n| n * n * 1_000_000) {
        let mut session = db.connect();
        session.run("SELECT taskq.map('x', '[]')");
        let pid = session.pid();
        limit(&mut witness, pid, more);
        match session.batch_execute(call) {
            Ok(()) => worked += 1,
            // It ended without the memory to tell its client why: the log has it.
            Err(error) if error.is_closed() => ended += 1,
            Err(error) => {
                let error = error.as_db_error().unwrap_or_else(|| panic!("the server has gone: {error:?}"));
                assert_eq!(error.code().code(), "53200", "{error:?}");
                match error.severity() {
                    "FATAL" => ended += 1,
                    _ => refused += 1,
                }
            }
        }
        // Its backend is the same: no other session was thrown out.
        assert_eq!(witness.one::<i32>("SELECT pg_backend_pid()"), witness_pid, "{more} bytes more");
    }
    assert!(ended > 0 && worked > 0, "{ended} ended, {refused} refused, {worked} worked");
}
