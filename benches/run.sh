#!/usr/bin/env bash
# Measures the queue on a private cluster and prints a table of ratios. `make bench` installs the release build first, and
# then calls this, and peers.sh, which measures it beside other queues. docs/benchmarks.md says what the numbers mean.
#
#   PG_CONFIG=$(.ci/server.sh) benches/run.sh [grant] [ahead] [insert] [graph] [planning] [explain]     default: all of them
#
#   SIZES='10000 1000000'   ready tasks that a grant chooses from: each beside the first; add 10000000 where there is time
#   ROUNDS=3                measurements of each            SECONDS_EACH=3   how long one of a grant takes
#
# Every figure stands beside another one that was measured in the same run on the same machine, since only their
# ratio means something elsewhere. Each measurement is taken several times, in turn with the one that it is
# compared with, and the best time counts: the others tell what else the machine was doing. Nothing else should
# use it meanwhile. What was printed, and the plans, stay in target/bench/.
# shellcheck disable=SC2034  # `round` of the loops is not used in all of them
set -euo pipefail

cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/bench
mkdir -p "$out"
rows=$out/rows.md
: >"$rows"
# shellcheck source=benches/common.sh
. benches/common.sh

sizes=${SIZES:-10000 1000000} rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-3}

# --- the cluster -------------------------------------------------------------------------------------------------

workers='' gate=''
finish() {
    [ -z "$workers" ] || kill "$workers" 2>/dev/null || true
    [ -z "$gate" ] || kill "$gate" 2>/dev/null || true
    stop_cluster
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_cluster -c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track=none

# A new database with the extension in it.
database() {
    new_database "$1"
    sql "$1" -c 'CREATE EXTENSION taskq'
}

# fill DATABASE NUMBER ACTION: ready tasks with bodies of 100 bytes.
fill() {
    sql "$1" -v n="$2" -v action="$3" -f "$benches/fill.sql" >/dev/null
}

# bench DATABASE SCRIPT [pgbench's arguments]: everything that pgbench prints.
bench() {
    local database=$1 script=$2
    shift 2
    pgbench -n -M prepared -f "$benches/$script" "$@" "$database" 2>&1
}

# --- the table ---------------------------------------------------------------------------------------------------

# row WHAT FIRST_LABEL FIRST SECOND_LABEL SECOND UNIT: with the ratio of the two.
row() {
    awk -v what="$1" -v l1="$2" -v v1="$3" -v l2="$4" -v v2="$5" -v unit="$6" 'BEGIN {
        f = v1 < 10 ? "%.3f" : v1 < 1000 ? "%.1f" : "%.0f"; a = sprintf(f, v1)
        f = v2 < 10 ? "%.3f" : v2 < 1000 ? "%.1f" : "%.0f"; b = sprintf(f, v2)
        printf "| %s | %s: %s %s | %s: %s %s | %.2f |\n", what, l1, a, unit, l2, b, unit, v1 / v2
    }' | tee -a "$rows"
}

# least / most: of the numbers given.
least() { printf '%s\n' "$@" | sort -g | head -n 1; }
most() { printf '%s\n' "$@" | sort -g | tail -n 1; }

# --- what a grant costs ------------------------------------------------------------------------------------------

# Milliseconds of the statement that says `measured`, out of what pgbench -r prints.
latency() {
    sed -n 's/^ *\([0-9.]*\) .*measured.*/\1/p'
}

# grant_ms DATABASE BATCH SCRIPT [pgbench's arguments]
grant_ms() {
    local ms
    ms=$(bench "$1" "$3" -r -D batch="$2" -D filled=0 "${@:4}" | tee -a "$out/grant.log" | latency)
    [ -n "$ms" ] || die "pgbench did not measure anything: see $out/grant.log"
    printf '%s\n' "$ms"
}

ready() { sql "$1" -c 'SELECT count(*) FROM taskq.run'; }

# What a grant took is given back, as often as it likes, and is ready again at once: the backlog stays as it is.
no_limits() {
    sql "$1" -c "ALTER DATABASE $1 SET taskq.max_tries = -1"
}

grant() {
    local batch round size small large empty times empties
    local -A times
    : >"$out/grant.log"
    for size in $sizes; do
        database "ready_$size"
        no_limits "ready_$size"
        fill "ready_$size" "$size" work
        sql "ready_$size" -c 'VACUUM ANALYZE'
    done
    for batch in 1 100; do
        times=() empties=()
        for round in $(seq "$rounds"); do
            for size in $sizes; do
                times[$size]+=" $(grant_ms "ready_$size" $batch grant.sql -T "$seconds")"
                [ "$(ready "ready_$size")" = "$size" ] || die "a backlog of $size did not stay as it was"
                # Entries of returned tasks are for vacuum to remove, here as everywhere.
                sql "ready_$size" -c 'VACUUM'
            done
            database empty
            no_limits empty
            sql empty -c 'VACUUM ANALYZE'
            empties+=("$(grant_ms empty $batch grant_from_empty.sql -T "$seconds")")
            say "grant of $batch, round $round:$(for size in $sizes; do printf ' %s ms of %s;' "${times[$size]##* }" "$size"; done) ${empties[-1]} ms planned while empty"
        done
        # shellcheck disable=SC2086  # words
        small=$(least ${times[${sizes%% *}]})
        for size in $sizes; do
            [ "$size" != "${sizes%% *}" ] || continue
            # shellcheck disable=SC2086
            large=$(least ${times[$size]})
            row "grant of $batch, by the number of ready tasks" "$size" "$large" "${sizes%% *}" "$small" ms
        done
        empty=$(least "${empties[@]}")
        row "grant of $batch, planned while the queue was empty" "100,000 now" "$empty" "${sizes%% *}, planned then" "$small" ms
    done
}

# --- what stands before the next ready task ----------------------------------------------------------------------

# A claim walks its index from the beginning: past entries of tasks in progress, and past those of finished tasks
# that vacuum has not removed.
ahead() {
    local free held done_ vacuumed
    : >"$out/grant.log"
    database ahead
    no_limits ahead
    fill ahead 200000 work
    sql ahead -c 'VACUUM ANALYZE'
    free=$(grant_ms ahead 1 grant.sql -t 300)
    sql ahead -c "CREATE TABLE held AS SELECT task_id, token FROM taskq.own_tasks('bench', 50000, '{work}', '1 day')"
    held=$(grant_ms ahead 1 grant.sql -t 300)
    sql ahead -c "SELECT count(*) FROM (SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM held) AS h,
                  taskq.return_tasks(h.ids, h.tokens)" >/dev/null
    done_=$(grant_ms ahead 1 grant.sql -t 300)
    sql ahead -c 'VACUUM'
    vacuumed=$(grant_ms ahead 1 grant.sql -t 300)
    say "grant of 1: $free ms; behind 50,000 in progress $held; behind 50,000 done $done_; after VACUUM $vacuumed"
    row "grant of 1 behind 50,000 tasks in progress" "behind them" "$held" "at the head" "$free" ms
    row "grant of 1 behind 50,000 finished tasks" "not vacuumed" "$done_" "vacuumed" "$vacuumed" ms
}

# --- what an insert costs ----------------------------------------------------------------------------------------

insert() {
    local line inserts=() bodies=() copies=()
    database inserting
    while IFS='|' read -r -a line; do
        say "insert of 100,000: insert_tasks ${line[0]} ms, insert_many ${line[1]} ms, COPY ${line[2]} ms"
        inserts+=("${line[0]}") bodies+=("${line[1]}") copies+=("${line[2]}")
    done < <(sql inserting -f "$benches/insert.sql")
    [ ${#inserts[@]} -gt 0 ] || die "nothing was inserted"
    row "100,000 tasks with bodies of 100 bytes" "one insert_tasks" "$(least "${inserts[@]}")" \
        "COPY of the same rows into the same tables" "$(least "${copies[@]}")" ms
    row "the same" "one insert_many" "$(least "${bodies[@]}")" \
        "COPY of the same rows into the same tables" "$(least "${copies[@]}")" ms
}

# --- graphs ------------------------------------------------------------------------------------------------------

# The workers of a graph begin together, warm: each has done some tasks of another action, and then waits for a lock
# that this holds until all of them wait. Else a graph that is done in a fifth of a second would be a measurement of how
# long a new connection takes to load the library.
open_gate() {
    sql graph -v clients="$1" -f "$benches/graph_gate.sql" &
    gate=$!
    for _ in $(seq 100); do
        [ "$(sql graph -c "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")" = 0 ] || return 0
        sleep 0.05
    done
    die "no session holds the gate"
}

of_graph="action_no = (SELECT action_no FROM taskq.action WHERE name = 'work')"

# graph_rate SCRIPT SHAPE CLIENTS BATCH: tasks/s from the first grant to the last end, as the queue recorded them.
graph_rate() {
    local result
    database graph
    sql graph -v shape="$2" -f "$benches/graph.sql" >/dev/null
    sql graph -c 'VACUUM ANALYZE'
    open_gate "$3"
    # Told when the last task has settled. Of those without dependencies others may have some in hand then.
    pgbench -n -M prepared -f "$benches/$1.sql" -c "$3" -j 2 -T 600 -D batch="$4" -D warm=0 graph >>"$out/graph.log" 2>&1 &
    workers=$!
    sql graph -c "CALL taskq.wait_for_tasks('{done}', '10 minutes', NULL)" >/dev/null
    for _ in $(seq 100); do
        [ "$(sql graph -c "SELECT count(*) FROM taskq.tasks WHERE action = 'work' AND state <> 'completed'")" != 0 ] || break
        sleep 0.1
    done
    kill "$workers"
    wait "$workers" 2>/dev/null || true
    wait "$gate" || die "the gate of the workers did not open"
    workers='' gate=''
    result=$(sql graph -c "SELECT count(*) / extract(epoch FROM max(settled_at) - min(granted_at)) FROM taskq.settled WHERE $of_graph")
    [ "$(sql graph -c "SELECT count(*) FROM taskq.tasks WHERE action = 'work' AND state <> 'completed'")" = 0 ] ||
        die "$2: tasks are left over"
    printf '%s\n' "$result"
}

# graph_row WHAT SCRIPT SHAPE CLIENTS BATCH FLAT: beside a flat set of as many tasks, each worked off the same way.
graph_row() {
    local round flats=() shapes=()
    for round in $(seq "$rounds"); do
        shapes+=("$(graph_rate "$2" "$3" "$4" "$5")")
        flats+=("$(graph_rate "$2" "$6" "$4" "$5")")
        say "$1, round $round: ${shapes[-1]} tasks/s; without dependencies ${flats[-1]}"
    done
    row "$1" "graph" "$(most "${shapes[@]}")" "without dependencies" "$(most "${flats[@]}")" tasks/s
}

graph() {
    : >"$out/graph.log"
    graph_row "10,000 parents and one child, 8 clients, one by one" graph_work fan_in 8 1 flat_10000
    graph_row "10,000 parents and one child, 8 clients, hundreds" graph_work fan_in 8 100 flat_10000
    graph_row "20,000 parts, 400 shards, one end, 4 clients, hundreds" graph_work shards 4 100 flat_20000
    graph_row "chain of 1,000, one client" graph_work chain 1 1 flat_1000
    graph_row "the same, with return_and_own_tasks" graph_both chain 1 1 flat_1000
}

# --- planning ----------------------------------------------------------------------------------------------------

# How often each statement inside the functions was planned, by pg_stat_statements. A plan that a backend makes
# counts one; so with 4 clients 4 is as few as can be.
planning() {
    local clients=4 line
    database planning
    sql planning -c 'CREATE EXTENSION pg_stat_statements'
    PGOPTIONS='-c pg_stat_statements.track=all -c pg_stat_statements.track_planning=on' \
        bench planning planning.sql -c $clients -j 2 -t 500 >"$out/planning.log" || die "see $out/planning.log"
    sql planning -F ' | ' -f "$benches/planning_report.sql" >"$out/planning.txt"
    line=$(sql planning -F ' ' -c "SELECT count(*), min(calls), max(plans), sum(calls), sum(plans) FROM hot_statements")
    read -r -a line <<<"$line"
    say "${line[0]} hot statements ran ${line[3]} times and were planned ${line[4]} times; most often for one statement: ${line[2]}"
    row "${line[0]} hot statements, $clients clients, ${line[1]} calls or more of each" \
        "most plans of a statement" "${line[2]}" "clients" "$clients" plans
    [ "${line[2]}" -le "$clients" ] || say "a hot statement is planned more than once in a backend: see $out/planning.txt"
}

# --- plans -------------------------------------------------------------------------------------------------------

# The plans of all hot statements, as auto_explain shows them from inside the functions: made by a session while
# the queue was empty and kept while it filled up, and made anew after ANALYZE.
explain() {
    local size
    for size in 1 1000; do
        database explaining
        sql explaining -v size=$size -v explain="$benches/explain_calls.sql" -f "$benches/explain_empty.sql" \
            >"$out/plans_kept_$size.txt" 2>&1
        sql explaining -c 'VACUUM ANALYZE'
        sql explaining -v explain="$benches/explain_calls.sql" -f "$benches/explain_full.sql" >"$out/plans_new_$size.txt" 2>&1
    done
    awk -f "$benches/explain.awk" -v grows="$out/plans_grow.txt" "$out"/plans_kept_1.txt "$out"/plans_kept_1000.txt \
        "$out"/plans_new_1.txt "$out"/plans_new_1000.txt >"$out/plans.md"
    say "buffers that each statement touches: $out/plans.md"
    if [ -s "$out/plans_grow.txt" ]; then
        say "statements that cost more in a full queue, with their buffers in an empty and in a full one:"
        cat "$out/plans_grow.txt" >&2
    fi
}

# --- all ---------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- grant ahead insert graph planning explain
for part in "$@"; do
    case "$part" in
        grant | ahead | insert | graph | planning | explain) say "$part"; "$part" ;;
        *) die "there is no part $part" ;;
    esac
done

{
    printf '\n| what | | compared with | ratio |\n|---|---|---|---|\n'
    cat "$rows"
    [ ! -s "$out/plans.md" ] || { printf '\n'; cat "$out/plans.md"; }
} | tee "$out/table.md"
