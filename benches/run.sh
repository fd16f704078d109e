#!/usr/bin/env bash
# Measures the queue on a private cluster and prints a table of ratios. `make bench` installs the release build
# first, and then calls this. docs/benchmarks.md says what the numbers mean.
#
#   run.sh [grant] [ahead] [insert] [work] [graph] [planning] [explain]     default: all of them
#
#   PG_CONFIG=path     the server to use (default: the first pg_config on the path)
#
# Every figure stands beside another one that was measured in the same run on the same machine, since only their
# ratio means something elsewhere. Each measurement is taken several times, in turn with the one that it is
# compared with, and the best time counts: the others tell what else the machine was doing. Nobody else should
# use it meanwhile. What was printed, and the plans, stay in target/bench/.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
root=$(dirname "$here")
cd "$root"
out=${CARGO_TARGET_DIR:-target}/bench
mkdir -p "$out"
rows=$out/rows.md
: >"$rows"

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# --- the cluster -------------------------------------------------------------------------------------------------

pg_config=${PG_CONFIG:-pg_config}
command -v "$pg_config" >/dev/null || die "$pg_config does not exist: set PG_CONFIG"
export PG_CONFIG=$pg_config
PATH=$("$pg_config" --bindir):$PATH

workers=''
finish() {
    [ -z "$workers" ] || kill "$workers" 2>/dev/null || true
    .ci/cluster.sh stop "$out/cluster"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# No fsync, so that the disk is not what is measured; no full pages, so that WAL is that of the steady state; no
# autovacuum, so that it does not fall into one measurement and not into the other: each begins with a VACUUM.
.ci/cluster.sh start "$out/cluster" -c fsync=off -c full_page_writes=off -c autovacuum=off \
    -c shared_buffers=1GB -c max_wal_size=16GB -c checkpoint_timeout=1h \
    -c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track=none
settings=$(.ci/cluster.sh env "$out/cluster")
# shellcheck disable=SC2086,SC2163  # words of the form NAME=value
export $settings
unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE

# sql DATABASE [psql's arguments]: the result alone, one field a line.
sql() {
    local database=$1
    shift
    psql -X -q -A -t -v ON_ERROR_STOP=1 -v here="$here" -d "$database" "$@"
}

# A new database with the extension in it.
database() {
    sql postgres -c "SET client_min_messages = warning" -c "DROP DATABASE IF EXISTS $1 WITH (FORCE)" \
        -c "CREATE DATABASE $1"
    sql "$1" -c 'CREATE EXTENSION taskq'
}

# fill DATABASE NUMBER ACTION: ready tasks with bodies of 100 bytes.
fill() {
    sql "$1" -v n="$2" -v action="$3" -f "$here/fill.sql" >/dev/null
}

# bench DATABASE SCRIPT [pgbench's arguments]: everything that pgbench prints.
bench() {
    local database=$1 script=$2
    shift 2
    pgbench -n -M prepared -f "$here/$script" "$@" "$database" 2>&1
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

grant() {
    local batch round small large empty smalls larges empties
    : >"$out/grant.log"
    database small
    database large
    fill small 1000 work
    fill large 1000000 work
    sql small -c 'VACUUM ANALYZE'
    sql large -c 'VACUUM ANALYZE'
    for batch in 1 100; do
        smalls=() larges=() empties=()
        for round in 1 2 3; do
            smalls+=("$(grant_ms small $batch grant.sql -T 3)")
            larges+=("$(grant_ms large $batch grant.sql -T 3)")
            database empty
            sql empty -c 'VACUUM ANALYZE'
            empties+=("$(grant_ms empty $batch grant_from_empty.sql -T 3)")
            # Entries of returned tasks are for vacuum to remove, here as everywhere.
            sql small -c 'VACUUM'
            sql large -c 'VACUUM'
            say "grant of $batch, round $round: ${smalls[-1]} ms of 1,000; ${larges[-1]} ms of 1,000,000; ${empties[-1]} ms planned while empty"
        done
        small=$(least "${smalls[@]}") large=$(least "${larges[@]}") empty=$(least "${empties[@]}")
        row "grant of $batch, by the number of ready tasks" "1,000,000" "$large" "1,000" "$small" ms
        row "grant of $batch, planned while the queue was empty" "100,000 now" "$empty" "1,000, planned then" "$small" ms
    done
}

# --- what stands before the next ready task ----------------------------------------------------------------------

# A claim walks its index from the beginning: past entries of tasks in progress, and past those of finished tasks
# that vacuum has not removed.
ahead() {
    local free held done_ vacuumed
    : >"$out/grant.log"
    database ahead
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
    local line inserts=() copies=()
    database inserting
    while IFS='|' read -r -a line; do
        say "insert of 100,000: ${line[0]} ms, COPY ${line[1]} ms"
        inserts+=("${line[0]}") copies+=("${line[1]}")
    done < <(sql inserting -f "$here/insert.sql")
    [ ${#inserts[@]} -gt 0 ] || die "nothing was inserted"
    row "100,000 tasks with bodies of 100 bytes" "one insert_tasks" "$(least "${inserts[@]}")" \
        "COPY of the same rows into the same tables" "$(least "${copies[@]}")" ms
}

# --- claiming and completing -------------------------------------------------------------------------------------

# work_rate DATABASE SCRIPT BATCH COUNT_SQL: "tasks/s bytes-of-WAL/task"; COUNT_SQL counts what is done.
work_rate() {
    local seconds=6 before after lsn
    sql "$1" -c 'VACUUM' -c 'CHECKPOINT'
    before=$(sql "$1" -c "$4")
    lsn=$(sql "$1" -c 'SELECT pg_current_wal_insert_lsn()')
    bench "$1" "$2" -c 4 -j 2 -T $seconds -D batch="$3" >>"$out/work.log" || die "see $out/work.log"
    after=$(sql "$1" -c "$4")
    sql "$1" -F ' ' -c "SELECT abs($after - $before) / $seconds.0, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$lsn') / abs($after - $before)"
}

work() {
    local batch script round rate wal q f q_wal f_wal queue floor
    : >"$out/work.log"
    for batch in 1 100; do
        queue=() floor=()
        for round in 1 2; do
            database queue
            fill queue 1000000 work
            sql queue -f "$here/floor.sql"
            sql queue -c 'ANALYZE'
            [ "$batch" = 1 ] && script=work_one.sql || script=work_many.sql
            read -r rate wal < <(work_rate queue $script "$batch" 'SELECT count(*) FROM taskq.settled')
            queue+=("$rate") q_wal=$wal
            read -r rate wal < <(work_rate queue floor_work.sql "$batch" 'SELECT count(*) FROM floor')
            floor+=("$rate") f_wal=$wal
            [ "$(sql queue -c 'SELECT count(*) FROM floor')" -gt 0 ] || die "the floor ran empty: give it more rows"
            [ "$(sql queue -c 'SELECT count(*) FROM taskq.run')" -gt 0 ] || die "the queue ran empty: give it more tasks"
            say "claim and complete $batch, round $round: ${queue[-1]}/s, $q_wal bytes of WAL; floor ${floor[-1]}/s, $f_wal bytes"
        done
        q=$(most "${queue[@]}") f=$(most "${floor[@]}")
        row "claim and complete, batch $batch, 4 clients, 1,000,000 ready" "taskq" "$q" "floor" "$f" tasks/s
        row "WAL of that, per task" "taskq" "$q_wal" "floor" "$f_wal" bytes
    done
}

# --- graphs ------------------------------------------------------------------------------------------------------

# graph_rate SHAPE CLIENTS BATCH: tasks/s from the first grant to the last end, as the queue recorded them.
graph_rate() {
    local result
    database graph
    sql graph -v shape="$1" -f "$here/graph.sql" >/dev/null
    sql graph -c 'VACUUM ANALYZE'
    # Told when the last task has settled. Of those without dependencies others may have some in hand then.
    pgbench -n -M prepared -f "$here/graph_work.sql" -c "$2" -j 2 -T 600 -D batch="$3" graph >>"$out/graph.log" 2>&1 &
    workers=$!
    sql graph -c "CALL taskq.wait_for_tasks('{done}', '10 minutes', NULL)" >/dev/null
    for _ in $(seq 100); do
        [ "$(sql graph -c "SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'")" != 0 ] || break
        sleep 0.1
    done
    kill "$workers"
    wait "$workers" 2>/dev/null || true
    workers=''
    result=$(sql graph -c "SELECT count(*) / extract(epoch FROM max(settled_at) - min(granted_at)) FROM taskq.settled")
    [ "$(sql graph -c "SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'")" = 0 ] || die "$1: tasks are left over"
    printf '%s\n' "$result"
}

# graph_row WHAT SHAPE CLIENTS BATCH FLAT: beside a flat set of as many tasks.
graph_row() {
    local round flats=() shapes=()
    for round in 1 2 3; do
        shapes+=("$(graph_rate "$2" "$3" "$4")")
        flats+=("$(graph_rate "$5" "$3" "$4")")
        say "$1, round $round: ${shapes[-1]} tasks/s; without dependencies ${flats[-1]}"
    done
    row "$1" "graph" "$(most "${shapes[@]}")" "without dependencies" "$(most "${flats[@]}")" tasks/s
}

graph() {
    : >"$out/graph.log"
    graph_row "10,000 parents and one child, 8 clients, batch 1" fan_in 8 1 flat_10000
    graph_row "10,000 parents and one child, 8 clients, batch 100" fan_in 8 100 flat_10000
    graph_row "20,000 parts, 400 shards, one end, 4 clients, batch 100" shards 4 100 flat_20000
    graph_row "chain of 1,000, one client" chain 1 1 flat_1000
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
    sql planning -F ' | ' -f "$here/planning_report.sql" >"$out/planning.txt"
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
        sql explaining -v size=$size -v explain="$here/explain_calls.sql" -f "$here/explain_empty.sql" \
            >"$out/plans_kept_$size.txt" 2>&1
        sql explaining -c 'VACUUM ANALYZE'
        sql explaining -v explain="$here/explain_calls.sql" -f "$here/explain_full.sql" >"$out/plans_new_$size.txt" 2>&1
    done
    awk -f "$here/explain.awk" -v grows="$out/plans_grow.txt" "$out"/plans_kept_1.txt "$out"/plans_kept_1000.txt \
        "$out"/plans_new_1.txt "$out"/plans_new_1000.txt >"$out/plans.md"
    say "buffers that each statement touches: $out/plans.md"
    if [ -s "$out/plans_grow.txt" ]; then
        say "statements that cost more in a full queue, with their buffers in an empty and in a full one:"
        cat "$out/plans_grow.txt" >&2
    fi
}

# --- all ---------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- grant ahead insert work graph planning explain
for part in "$@"; do
    case "$part" in
        grant | ahead | insert | work | graph | planning | explain) say "$part"; "$part" ;;
        *) die "there is no part $part" ;;
    esac
done

{
    printf '\n| what | | compared with | ratio |\n|---|---|---|---|\n'
    cat "$rows"
    [ ! -s "$out/plans.md" ] || { printf '\n'; cat "$out/plans.md"; }
} | tee "$out/table.md"
