#!/usr/bin/env bash
# Measures what suspended tasks cost those that are not, on a private cluster, and prints markdown. The extension must be installed.
#
#   PG_CONFIG=$(.ci/server.sh) benches/suspended.sh
#
#   SIZE=1000000     suspended tasks, of which 10,000 each wait for one signal
#   ROUNDS=40        bursts of claims in each database, by turns
#   CALLS=1000       claims and returns of a burst
#   EXPIRED=100000   suspended tasks whose time is up at once
#   SHARED_BUFFERS=1GB
#
# Takes some five minutes. The machine should do nothing else meanwhile.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/bench/suspended
mkdir -p "$out"
out=$(cd "$out" && pwd -P)
# shellcheck source=benches/common.sh
. benches/common.sh

size=${SIZE:-1000000} rounds=${ROUNDS:-40} calls=${CALLS:-1000} expired=${EXPIRED:-100000}
batch=10000

seconds() { # of a command
    local began ended
    began=$(date +%s%N)
    "$@" >/dev/null
    ended=$(date +%s%N)
    awk -v ns=$((ended - began)) 'BEGIN { printf "%.2f\n", ns / 1e9 }'
}

# suspend DATABASE ACTION NUMBER SIGNAL TIME-OUT: so many are inserted, claimed, and suspended by one call.
suspend() {
    sql "$1" -v action="$2" -v number="$3" -v signal="$4" -v timeout="$5" <<'SQL'
SELECT count(*) FROM taskq.insert_many(:'action', array_fill('b'::text, ARRAY[:number]));
WITH owned AS MATERIALIZED (SELECT * FROM taskq.own_tasks('bench', :number, ARRAY[:'action']))
SELECT count(*) FROM taskq.return_tasks((
    SELECT jsonb_agg(jsonb_build_object('task_id', task_id, 'token', token, 'status_code', 'pending', 'wait_at_most', :'timeout',
                                        'depends_on', jsonb_build_array(jsonb_build_object('id', :'signal', 'signal', true))))
      FROM owned));
SQL
}

# What a client does: claims a task and returns it.
cat >"$out/burst.sql" <<'SQL'
SELECT task_id, token FROM taskq.own_tasks('bench', 1, ARRAY[:action]) \gset
SELECT taskq.return_task(:task_id, :token);
SQL

# burst DATABASE ACTION: µs for a claim and a return.
burst() {
    sql "$1" -c "SELECT count(*) FROM taskq.insert_many('$2', array_fill('b'::text, ARRAY[$calls]))" >/dev/null
    pgbench -n -t "$calls" -M prepared -D action="$2" -f "$out/burst.sql" "$1" 2>&1 |
        awk '/^tps/ { tps = $3 } /^number of failed/ && $5 > 0 { exit 1 } END { printf "%.1f\n", 1e6 / tps }'
}

median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.1f\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }

start_cluster
trap stop_cluster EXIT
for database in suspended bare bare_again; do
    new_database "$database"
    sql "$database" -c 'CREATE EXTENSION taskq'
done

fill() {
    local n
    for ((n = 0; n < size / batch; n++)); do
        suspend suspended work "$batch" "signal $n" '20 days' >/dev/null
    done
}
printf '%s suspended tasks, by calls of %s: %s seconds\n\n' "$size" "$batch" "$(seconds fill)"
for database in suspended bare bare_again; do sql "$database" -c 'VACUUM ANALYZE'; done
sql postgres -c CHECKPOINT

printf '| µs for a claim and a return, medians of %s bursts of %s | with %s suspended | without | again without | with over without | without over without |\n' \
    "$rounds" "$calls" "$size"
printf '|---|--:|--:|--:|--:|--:|\n'
for action in work other; do
    for database in suspended bare bare_again; do
        burst "$database" "$action" >/dev/null
        : >"$out/$database.us"
    done
    for ((round = 0; round < rounds; round++)); do
        for database in suspended bare bare_again; do burst "$database" "$action" >>"$out/$database.us"; done
    done
    paste <(median <"$out/suspended.us") <(median <"$out/bare.us") <(median <"$out/bare_again.us") |
        awk -v what="$([ "$action" = work ] && echo 'of their action' || echo 'of another action')" \
            '{ printf "| %s | %s | %s | %s | %.3f | %.3f |\n", what, $1, $2, $3, $1 / $2, $3 / $2 }'
done

printf '\nA signal of which %s wait: %s seconds. ' "$batch" "$(seconds sql suspended -c "SELECT taskq.signal('signal 0')")"
printf 'One claim of them all: %s seconds.\n' "$(seconds sql suspended -c "SELECT count(*) FROM taskq.own_tasks('bench', $batch, '{work}')")"

new_database expired
sql expired -c 'CREATE EXTENSION taskq' -c 'SET client_min_messages = error'
suspend expired work "$expired" never '3 seconds' >/dev/null
sleep 4
printf '%s suspended tasks whose time is up: one claim of them all takes %s seconds, and returns %s.\n' "$expired" \
    "$(seconds sql expired -c "CREATE TABLE claimed AS SELECT * FROM taskq.own_tasks('bench', $expired, '{work}')")" \
    "$(sql expired -c 'SELECT count(*) FROM claimed')"
