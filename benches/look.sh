#!/usr/bin/env bash
# What a look costs at a queue of very many tasks: fills private databases and prints how long each view takes.
#
#   PG_CONFIG=$(.ci/server.sh) benches/look.sh [ready] [blocked] [settled]      default: all of them
#
#   NUMBER=10000000     tasks        ROUNDS=5    looks of each, in a session that has looked before; the best counts
#
# Processor time of the session, and by the clock. Beside the tasks of one action there are others of a few, and 800 tasks are in
# progress. `count_tasks` counts, and stands for what the others would take if they did.
set -euo pipefail

cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}/bench
mkdir -p "$out"
# shellcheck source=benches/common.sh
. benches/common.sh

number=${NUMBER:-10000000} rounds=${ROUNDS:-5}
[ $# -gt 0 ] || set -- ready blocked settled

trap stop_cluster EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
SHARED_BUFFERS=${SHARED_BUFFERS:-4GB} start_cluster

# fill DATABASE ARGUMENTS: so many tasks in chunks, with these arguments of insert_many; and those beside them.
fill() {
    new_database "$1"
    sql "$1" -c 'CREATE EXTENSION taskq' -c "SELECT taskq.insert_task('parent', 'parent')" >/dev/null
    sql "$1" -c "DO \$\$
        DECLARE
            bodies text[] := (SELECT array_agg('body ' || i) FROM generate_series(1, LEAST(100000, $number)) AS i);
        BEGIN
            FOR i IN 1..GREATEST($number / 100000, 1) LOOP
                PERFORM count(*) FROM taskq.insert_many('many', bodies$2);
                COMMIT;
            END LOOP;
            FOR i IN 1..10 LOOP
                PERFORM count(*) FROM taskq.insert_many('few ' || i, bodies[1:1000]);
            END LOOP;
            PERFORM count(*) FROM taskq.insert_many('held', bodies[1:10000]);
        END
        \$\$"
    sql "$1" -c "SELECT count(*) FROM taskq.own_tasks('with a deadline', 500, '{held}', '1 hour')" \
        -c "SET taskq.lease = ''" -c "SELECT count(*) FROM taskq.own_tasks('without one', 300, '{few 3}')" >/dev/null
    # All is sealed that has settled by now.
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sql "$1" -c 'SELECT taskq.maintain()' >/dev/null
        sleep 1
    done
    sql "$1" -c 'VACUUM ANALYZE' -c 'CHECKPOINT'
}

# look DATABASE NAME QUERY: a line of the table.
look() {
    {
        printf '\\o /dev/null\n%s;\n' "$3"
        for _ in $(seq "$rounds"); do
            printf '\\o\n%s \\gset\n' "SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1) AS cpu, clock_timestamp() AS clock"
            printf '\\o /dev/null\n%s;\n\\o\n' "$3"
            printf '%s;\n' "SELECT round((split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::bigint - :cpu) / 1e6) || ' ' || round(EXTRACT(epoch FROM clock_timestamp() - :'clock') * 1000)"
        done
    } | sql "$1" | awk -v name="$2" '
        NF == 2 { if (cpu == "" || $1 < cpu) cpu = $1; if (clock == "" || $2 < clock) clock = $2 }
        END { printf "| %s | %d | %d |\n", name, cpu, clock }'
}

for case; do
    case $case in
        ready) arguments='' ;;
        blocked) arguments=", depends_on => '{parent}'" ;;
        settled) arguments=', spontaneous => true' ;;
        *) die "ready, blocked or settled" ;;
    esac
    say "$number tasks, $case"
    fill "look_$case" "$arguments"
    printf '\n%s tasks, %s:\n\n| look | processor, ms | clock, ms |\n|---|--:|--:|\n' "$number" "$case"
    look "look_$case" '`top`' 'SELECT * FROM taskq.top'
    look "look_$case" '`stats`, numbers' 'SELECT action, blocked, scheduled, ready, in_progress, completed, aborted, oldest_ready FROM taskq.stats'
    look "look_$case" '`stats`, with percentiles' 'SELECT * FROM taskq.stats'
    look "look_$case" '`health()`' 'SELECT * FROM taskq.health()'
    look "look_$case" '`metrics()`' 'SELECT taskq.metrics()'
    look "look_$case" '`page()`' 'SELECT taskq.page()'
    look "look_$case" '`find_tasks()`, 50 that are blocked' "SELECT * FROM taskq.find_tasks(states => '{blocked}')"
    look "look_$case" '`find_tasks()`, of 20,000 that do not contain it' "SELECT * FROM taskq.find_tasks(body => '{\"n\": 1}')"
    look "look_$case" '`find_tasks()`, in progress' "SELECT * FROM taskq.find_tasks(states => '{in-progress}')"
    look "look_$case" '`series()`' 'SELECT * FROM taskq.series()'
    look "look_$case" '`failures()`' 'SELECT * FROM taskq.failures()'
    look "look_$case" '`inbox`, 25 of it' 'SELECT * FROM taskq.inbox ORDER BY position LIMIT 25'
    look "look_$case" '`count_tasks()`' 'SELECT * FROM taskq.count_tasks()'
    sql postgres -c "DROP DATABASE look_$case"
done
