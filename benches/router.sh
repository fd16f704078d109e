#!/usr/bin/env bash
# Measures what the router (examples/sharding) adds to a call, and what a shard notices of another one. Prints two tables of
# docs/scaling.md. `make bench-router` installs the release build and the router first, and then calls this.
#
#   ROUNDS=5        measurements of each       CALLS=2000      calls of one task in each; a tenth of that with 100 tasks
#
# Each call is made by pgbench, one session, in turn to a shard and to the router of three: a round is one run of each. The
# processor time is that of all processes of the server, on which both router and shards are, so it is that of router and
# shard together. The latency is the median of a run. Whatever else the machine does only makes both greater: the least of
# the rounds counts. What the beginning of a session costs, here and on the shards, is measured by a run of ten calls and taken off.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/bench
mkdir -p "$out"
# shellcheck source=benches/common.sh
. benches/common.sh
rounds=${ROUNDS:-5} calls=${CALLS:-2000}
log=$out/router-log
table=$out/router.md

flood=''
finish() {
    [ -z "$flood" ] || kill "$flood" 2>/dev/null || true
    stop_cluster
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_cluster
sql postgres -c "SELECT 1 / count(*) FROM pg_available_extensions WHERE name = 'taskq_router'" >/dev/null ||
    die "taskq_router is not installed in this server: see .ci/router.sh"
socket=$(sql postgres -c 'SHOW unix_socket_directories')
for n in 0 1 2; do
    new_database "shard$n"
    sql "shard$n" -c 'CREATE EXTENSION taskq' -c "SELECT taskq.set_shard($n)" >/dev/null
done
new_database router
sql router -c 'SET client_min_messages = warning' -c 'CREATE EXTENSION taskq_router CASCADE' \
    -c "SELECT taskq_router.add_shards('host=$socket dbname=shard0', 'host=$socket dbname=shard1', 'host=$socket dbname=shard2')" >/dev/null
# A group for each shard.
group_of() {
    sql router -c "SELECT 'g' || n FROM generate_series(1, 1000) AS n WHERE taskq_router.shard_for('g' || n) = $1 LIMIT 1"
}
groups=("$(group_of 0)" "$(group_of 1)" "$(group_of 2)")

# --- the calls ---------------------------------------------------------------------------------------------------

script() {
    cat >"$out/router-$1.sql"
}
script insert_one <<'SQL'
SELECT taskq.insert_task(NULL, 'in', repeat('x', 100), group_id => :g);
SQL
script insert_100 <<'SQL'
SELECT count(*) FROM taskq.insert_many('in', array_fill(repeat('x', 100), '{100}'), group_id => :g);
SQL
script own_return_one <<'SQL'
SELECT task_id AS id, token FROM taskq.own_tasks('bench', 1, '{work}') \gset
SELECT taskq.return_task(:id, :token::uuid);
SQL
script own_return_100 <<'SQL'
SELECT array_agg(task_id)::text AS ids, array_agg(token)::text AS tokens FROM taskq.own_tasks('bench', 100, '{work}') \gset
SELECT count(*) FROM taskq.return_tasks(:ids::text[], :tokens::uuid[]);
SQL

# As many tasks of the action work as the runs of a round take, on each shard.
fill() {
    local n
    for n in 0 1 2; do
        sql "shard$n" -c "SELECT count(*) FROM taskq.delete_tasks(actions => '{in,work}')" \
            -c "SELECT count(*) FROM taskq.insert_many('work', array_fill(repeat('x', 100), ARRAY[$calls * 20]))" >/dev/null
        sql "shard$n" -c 'VACUUM (ANALYZE)'
    done
}

# ticks_of DATABASE SCRIPT CALLS: processor time of a run.
ticks_of() {
    local before after
    rm -f "$log".*
    before=$(cpu_ticks)
    pgbench -n -M prepared -D g="${groups[0]}" -f "$out/router-$2.sql" -t "$3" -l --log-prefix="$log" "$1" >"$out/router.out" 2>&1 ||
        { cat "$out/router.out" >&2; die "pgbench failed"; }
    # The sessions on the shards end a moment later.
    sleep 0.2
    after=$(cpu_ticks)
    printf '%s\n' $((after - before))
}

# measure DATABASE SCRIPT CALLS: ticks of a run of so many calls and ten, those of one of ten, and the median latency in microseconds.
measure() {
    local begin all
    begin=$(ticks_of "$1" "$2" 10)
    all=$(ticks_of "$1" "$2" $(($3 + 10)))
    awk '{ print $3 }' "$log".* | sort -n | awk -v all="$all" -v begin="$begin" '
        { at[NR] = $1 } END { printf "%d %d %.1f\n", all, begin, at[int((NR + 1) / 2)] }'
}

least() { printf '%s\n' "$@" | sort -g | head -n 1; }

declare -A cpu cold latency
names='insert_one insert_100 own_return_one own_return_100'
for _ in $(seq "$rounds"); do
    fill
    for name in $names; do
        number=$calls
        [ "${name%100}" = "$name" ] || number=$((calls / 10))
        for where in shard0 router; do
            read -r c b l < <(measure "$where" "$name" "$number")
            cpu[$where-$name]+=" $c"
            cold[$where-$name]+=" $b"
            latency[$where-$name]+=" $l"
        done
    done
done

# Microseconds of processor time a call: the least of the runs, less the least of the beginnings.
cpu_of() {
    local number=$calls
    [ "${2%100}" = "$2" ] || number=$((calls / 10))
    # shellcheck disable=SC2086  # numbers
    awk -v all="$(least ${cpu[$1-$2]})" -v begin="$(least ${cold[$1-$2]})" -v n="$number" -v hz="$ticks_per_second" \
        'BEGIN { printf "%.1f\n", (all - begin) * 1e6 / hz / n }'
}

declare -A said=([insert_one]='insert one' [insert_100]='insert 100' [own_return_one]='own one, return it' [own_return_100]='own 100, return them')
{
    printf '| | CPU µs, shard | router + shard | more, µs | median µs, shard | through the router | more, µs |\n|---|--:|--:|--:|--:|--:|--:|\n'
    for name in $names; do
        # shellcheck disable=SC2086  # numbers
        awk -v what="${said[$name]}" -v c0="$(cpu_of shard0 "$name")" -v c1="$(cpu_of router "$name")" \
            -v l0="$(least ${latency[shard0-$name]})" -v l1="$(least ${latency[router-$name]})" 'BEGIN {
            printf "| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", what, c0, c1, c1 - c0, l0, l1, l1 - l0 }'
    done
} | tee "$table"

# --- what a shard notices of another -----------------------------------------------------------------------------

# Transactions so far on each shard; the sessions that made them have to be gone, or they are not counted yet.
transactions() {
    while [ "$(sql postgres -c "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'shard%'")" -gt 0 ]; do
        sleep 0.05
    done
    sql postgres -c "SELECT string_agg(xact_commit + xact_rollback || '', ' ' ORDER BY datname) FROM pg_stat_database WHERE datname LIKE 'shard%'"
}

# counted WHAT STATEMENT: the statement a hundred times in one session of the router.
counted() {
    local what=$1 a0 b0 c0 a1 b1 c1
    read -r a0 b0 c0 < <(transactions)
    for _ in $(seq 100); do printf '%s;\n' "$2"; done | sql router >/dev/null
    read -r a1 b1 c1 < <(transactions)
    printf '| %s | %s | %s | %s |\n' "$what" $((a1 - a0)) $((b1 - b0)) $((c1 - c0))
}

g=${groups[0]}
{
    printf '\n| 100 calls | transactions on A | on B | on C |\n|---|--:|--:|--:|\n'
    counted "insert into a group of A" "SELECT taskq.insert_task(NULL, 'in', group_id => '$g')"
    counted "pause and resume a group of A" "SELECT taskq.pause_group('$g'), taskq.resume_group('$g')"
    counted "own one, all have some" "SELECT task_id FROM taskq.own_tasks('bench', 1, '{work}')"
    counted "own one where only A has some" "SELECT task_id FROM taskq.own_tasks('bench', 1, '{in}')"
    counted "return by a token of A" "SELECT taskq.return_tasks('{absent}', '{00000000-0000-8000-8000-000000000000}')"
} | tee -a "$table"

# A client inserts into A, one by one; beside it runs nothing, a flood into B, or a process that only counts.
declare -A beside
for _ in $(seq "$rounds"); do
    fill
    for what in nothing flood busy; do
        case $what in
            flood)
                pgbench -n -M prepared -D g="${groups[1]}" -f "$out/router-insert_100.sql" -T 600 router >/dev/null 2>&1 &
                flood=$!
                ;;
            busy)
                awk 'BEGIN { while (1) n++ }' &
                flood=$!
                ;;
        esac
        [ "$what" = nothing ] || sleep 1
        read -r _ _ l < <(measure router insert_one "$((calls / 2))")
        beside[$what]+=" $l"
        if [ -n "$flood" ]; then
            kill "$flood" 2>/dev/null || true
            wait "$flood" 2>/dev/null || true
            flood=''
        fi
    done
done
{
    printf '\n| insert one into A, through the router, while there is | median µs |\n|---|--:|\n'
    # shellcheck disable=SC2086  # numbers
    printf '| nothing else | %.0f |\n| a flood into B, hundreds through the same router | %.0f |\n| a process that only counts | %.0f |\n' \
        "$(least ${beside[nothing]})" "$(least ${beside[flood]})" "$(least ${beside[busy]})"
} | tee -a "$table"
