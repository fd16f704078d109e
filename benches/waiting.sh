#!/usr/bin/env bash
# Measures waiting and waking on a private cluster, and prints markdown tables. The extension must be installed.
#
#   PG_CONFIG=path   the server to use (default: Debian's PostgreSQL 15)
#   ROUNDS=n         wake-ups for each line of the first table (default: 1000)
#   SECONDS_IDLE=n   how long the idle sleepers are watched (default: 30)
#   SECONDS_BESIDE=n how long they are watched beside something that goes on (default: 60)
#   SECONDS_STRESS=n how long the search for lost wake-ups takes (default: 120)
#   WAITS=n          waits of the search for leaks (default: 100000)
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd -P)
build=${CARGO_TARGET_DIR:-$root/target}/clients/build
cluster=$root/target/bench-waiting
program=$build/release/taskq_bench_waiting

CARGO_TARGET_DIR=$build cargo build --release --locked --quiet --manifest-path "$root/benches/waiting/Cargo.toml"
"$root/.ci/cluster.sh" start "$cluster" -c max_connections=400 -c shared_buffers=256MB -c max_prepared_transactions="${MAX_PREPARED_TRANSACTIONS:-0}"
trap '"$root/.ci/cluster.sh" stop "$cluster"' EXIT
settings=$("$root/.ci/cluster.sh" env "$cluster")
# shellcheck disable=SC2086,SC2163  # words of the form NAME=value
export $settings

# A new database for each measurement, so that none works on what another has left.
fresh() {
    psql -X -q -d postgres -v ON_ERROR_STOP=1 <<SQL
SET client_min_messages = warning;
DROP DATABASE IF EXISTS waiting WITH (FORCE);
CREATE DATABASE waiting;
\connect waiting
CREATE EXTENSION taskq;
SQL
}
run() { fresh && PGDATABASE=waiting "$program" "$@"; }

processor=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
printf 'PostgreSQL %s, %s processors (%s), load before: %s\n\n' \
    "$(psql -X -At -d postgres -c 'SHOW server_version')" "$(nproc)" "${processor:-unknown}" "$(cut -d ' ' -f 1-3 /proc/loadavg)"
printf 'From sending COMMIT to the answer of one of the waiters, in milliseconds:\n\n'
printf '| call | waiters | wake-ups | p50 | p99 | longest |\n|---|---|---|---|---|---|\n'
for waiters in 1 100 300; do
    run latency "$waiters" "${ROUNDS:-1000}"
done
printf '\nProcessor time of idle sleepers:\n\n| sleepers | beside them | seconds | ms used | %% of a core |\n|---|---|---|---|---|\n'
run idle 300 "${SECONDS_IDLE:-30}"
run idle 50 "${SECONDS_IDLE:-30}"
for beside in leases schedule paused; do
    run idle 50 "${SECONDS_BESIDE:-60}" "$beside"
done
printf '\nLost wake-ups, bursts of commits and then silence; late is what took more than 4 s:\n\n'
printf '| seconds | cells × sleepers | hand-overs | late | longest, ms |\n|---|---|---|---|---|\n'
run stress "${SECONDS_STRESS:-120}"
printf '\nLeaks, one backend:\n\n| waits | of them ended by an error | locks left | kB after a tenth | kB at the end |\n|---|---|---|---|---|\n'
run leaks "${WAITS:-100000}"
