//! Whether waiting leaves anything behind: locks, memory.

use crate::server::{connect, pid, private_memory};

/// Waits that end in every way, on one connection.
pub fn run(waits: u64) {
    let (mut client, mut watcher) = (connect(), connect());
    let backend = pid(&mut client);
    client
        .batch_execute("SELECT taskq.insert_task('leak', 'leak unsettled'); SET statement_timeout = '3ms'")
        .unwrap();
    // Most end because their time is up, the last ones by statement_timeout.
    let calls = [
        "SELECT FROM taskq.own_tasks('w', 1, '{leak a,leak b,leak c}', wait => '1 millisecond')",
        "SELECT FROM taskq.wait_for_task('leak', '1 millisecond')",
        "CALL taskq.wait_for_work('{leak a,leak b}', '1 millisecond', NULL)",
        "CALL taskq.wait_for_tasks('{leak}', '1 millisecond', NULL)",
        "SELECT FROM taskq.own_tasks('w', 1, '{leak a}', wait => '1 hour')",
        "CALL taskq.wait_for_work('{leak a}', '1 hour', NULL)",
    ];
    let mut errors = 0_u64;
    let mut memory = [0; 2];
    for n in 0..waits {
        if n == waits / 10 {
            memory[0] = private_memory(backend);
        }
        if client.simple_query(calls[(n % calls.len() as u64) as usize]).is_err() {
            errors += 1;
        }
    }
    memory[1] = private_memory(backend);
    let locks: i64 =
        watcher.query_one("SELECT count(*) FROM pg_locks WHERE pid = $1", &[&backend]).unwrap().get(0);
    println!("| {waits} | {errors} | {locks} | {} | {} |", memory[0], memory[1]);
    assert_eq!(locks, 0, "no lock stays");
    client.batch_execute("SET statement_timeout = 0; SELECT taskq.cancel_tasks('{leak}')").unwrap();
}
