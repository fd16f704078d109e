#!/usr/bin/env bash
# Graphs at scale, measured on a private cluster that is thrown away: prints a Markdown table.
#
#   make install && benches/graph.sh [TASKS]     TASKS: size of the large graph (default 1000000); it gets three
#                                                dependencies a task, and the other graphs are a tenth of it
#   WORKERS=4 BATCH=500                          who works it off, and how many tasks each takes at a time
#   PG_CONFIG=path                               the server to measure (default: the first pg_config on the path)
#
# Durability is the server's default: each commit is flushed. What else is set stands below the table. At the end
# taskq.check() must have nothing to say, or the script fails.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"

tasks=${1:-1000000}
tenth=$((tasks / 10))
workers=${WORKERS:-4}
batch=${BATCH:-500}
export PG_CONFIG=${PG_CONFIG:-pg_config}
work=${CARGO_TARGET_DIR:-target}/bench-graph

die() {
    printf 'graph: %s\n' "$*" >&2
    exit 1
}

[[ $tasks =~ ^[0-9]+$ ]] && [ "$tasks" -ge 1000 ] || die "TASKS must be a number from 1000 up, not '$tasks'"

# --- the cluster -------------------------------------------------------------------------------------------------

settings=(shared_buffers=1GB max_wal_size=8GB checkpoint_timeout=15min work_mem=64MB)

finish() {
    .ci/cluster.sh stop "$work" || true
    rm -rf "$work"
}

arguments=()
for setting in "${settings[@]}"; do
    arguments+=(-c "$setting")
done
trap finish EXIT
.ci/cluster.sh start "$work" "${arguments[@]}"
# shellcheck disable=SC2046  # words of the form NAME=value
export $(.ci/cluster.sh env "$work")
unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS
PATH=$("$PG_CONFIG" --bindir):$PATH
export PGDATABASE=bench

sql() {
    psql -X -q -At -v ON_ERROR_STOP=1 "$@"
}

fresh() {
    sql -d postgres -c 'SET client_min_messages = warning' -c 'DROP DATABASE IF EXISTS bench' -c 'CREATE DATABASE bench'
    sql -c 'CREATE EXTENSION taskq'
}

# --- measuring ---------------------------------------------------------------------------------------------------

# Grouped by thousands.
pretty() {
    sed ':a; s/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/; ta' <<<"$1"
}

# row NAME COUNT UNIT MILLISECONDS: a line of the table.
row() {
    local rate
    rate=$(awk -v n="$2" -v ms="$4" 'BEGIN { printf "%.0f", (ms > 0 ? n * 1000 / ms : 0) }')
    printf '| %s | %s %s | %s s | %s |\n' "$1" "$(pretty "$2")" "$3" \
        "$(awk -v ms="$4" 'BEGIN { printf((ms < 1000 ? "%.3f" : "%.1f"), ms / 1000) }')" "$(pretty "$rate")"
}

# took STATEMENTS: runs them and prints the milliseconds of the last one.
took() {
    printf '%s\n' '\timing on' "$1" | psql -X -q -v ON_ERROR_STOP=1 -o /dev/null | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n 1
}

# measured NAME COUNT UNIT STATEMENTS: a line for the last of the statements.
measured() {
    local ms
    ms=$(took "$4")
    row "$1" "$2" "$3" "$ms"
}

# --- the graphs --------------------------------------------------------------------------------------------------

# batches COUNT SIZE: tasks 1 to COUNT as arrays of SIZE in the table `batch`. Each runs after three of the tasks
# before it, one in each third of a window of a twentieth of them: dozens of levels, thousands of tasks wide.
batches() {
    local window=$(($1 / 20))
    sql -c 'SELECT setseed(0.5)' -c "
        CREATE UNLOGGED TABLE batch AS
        SELECT (i - 1) / $2 AS n, jsonb_agg(jsonb_build_object('id', i::text, 'action', 'work', 'depends_on',
                   (SELECT COALESCE(jsonb_agg((i - o)::text), '[]') FROM unnest(ARRAY[a, b, c]) AS o WHERE o < i)) ORDER BY i) AS tasks
          FROM (SELECT i, 1 + floor(random() * third)::integer AS a,
                       1 + floor((random() + 1) * third)::integer AS b,
                       1 + floor((random() + 2) * third)::integer AS c
                  FROM (SELECT i, least($window, i - 1) / 3 AS third FROM generate_series(1, $1) AS i) AS task) AS drawn
         GROUP BY 1 ORDER BY 1" >/dev/null
}

# Each batch in a transaction of its own.
insert="DO \$\$
BEGIN
    FOR i IN 0 .. (SELECT max(n) FROM batch) LOOP
        PERFORM count(*) FROM taskq.insert_tasks((SELECT tasks FROM batch WHERE n = i));
        COMMIT;
    END LOOP;
END \$\$;"

# A worker takes and returns batches, each in a transaction of its own, until nothing has come for two seconds.
# It leaves behind when it returned the last one.
worker="DO \$\$
DECLARE ids text[]; tokens uuid[]; last timestamptz;
BEGIN
    LOOP
        SELECT array_agg(o.task_id), array_agg(o.token) INTO ids, tokens
          FROM taskq.own_tasks('worker', $batch, '{work}', '10 minutes', wait => '2 seconds') AS o;
        COMMIT;
        EXIT WHEN ids IS NULL;
        PERFORM count(*) FROM taskq.return_tasks(ids, tokens);
        COMMIT;
        last := clock_timestamp();
    END LOOP;
    INSERT INTO worker VALUES (last);
END \$\$;"

# work_off: runs the workers; prints the milliseconds until the last return.
work_off() {
    local n start pids=()
    sql -c 'CREATE TABLE IF NOT EXISTS worker (last timestamptz)' -c 'TRUNCATE worker'
    start=$(sql -c 'SELECT clock_timestamp()')
    for ((n = 0; n < workers; n++)); do
        sql -c "$worker" &
        pids+=($!)
    done
    for n in "${pids[@]}"; do
        wait "$n" || die "a worker failed"
    done
    sql -c "SELECT round(1000 * extract(epoch FROM max(last) - '$start')) FROM worker"
}

sound() {
    local problems
    problems=$(sql -c 'SELECT * FROM taskq.check() LIMIT 5')
    [ -z "$problems" ] || die "taskq.check() after $1: $problems"
}

left() {
    sql -c 'SELECT count(*) FROM taskq.tasks WHERE settled_at IS NULL'
}

# --- the measurements --------------------------------------------------------------------------------------------

printf '| what | size | time | per second |\n|---|---:|---:|---:|\n'

fresh
batches "$tasks" 10000
measured 'insert in calls of 10,000' "$tasks" tasks "$insert"
edges=$(sql -c 'SELECT count(*) FROM taskq.dependency')
printf '| &nbsp;&nbsp;with their dependencies | %s edges | | |\n' "$(pretty "$edges")"
sql -c 'ANALYZE' >/dev/null
last="'$tasks'"
ancestors=$(sql -c "SELECT count(*) FROM taskq.ancestors($last)")
measured '`ancestors` of the last task' "$ancestors" tasks "SELECT count(*) FROM taskq.ancestors($last);"
measured '`graph`, the first 500 of its surroundings' "$ancestors" tasks "SELECT taskq.graph($last);"
measured '`why` is it blocked' 1 task "SELECT * FROM taskq.why($last);"
ms=$(work_off)
row "work off, $workers workers, $batch at a time" "$tasks" tasks "$ms"
[ "$(left)" = 0 ] || die 'the workers have left tasks over'
measured '`check`' "$tasks" tasks 'SELECT * FROM taskq.check();'
sound 'working it off'
size=$(sql -c "SELECT pg_size_pretty(sum(pg_total_relation_size(oid))) FROM pg_class WHERE relnamespace = 'taskq'::regnamespace AND relkind = 'r'")

fresh
batches "$tenth" 10000
sql -c "$insert"
ids='(SELECT array_agg(id) FROM taskq.tasks)'
measured 'cancel a graph in one call' "$tenth" tasks "SELECT taskq.cancel_tasks($ids);"
measured 'bring it back with `retry_tasks`' "$tenth" tasks "SELECT taskq.retry_tasks($ids);"
measured 'delete it in one call' "$tenth" tasks "SELECT taskq.delete_tasks($ids);"
sound 'cancelling, retrying and deleting'

fan="SELECT count(*) FROM taskq.insert_tasks(taskq.chain(
         '{\"id\": \"root\", \"action\": \"root\"}',
         (SELECT jsonb_agg(jsonb_build_object('id', i::text, 'action', 'work')) FROM generate_series(1, $tenth) AS i),
         '{\"id\": \"end\", \"action\": \"end\"}'));"
fresh
measured 'insert a fan-out with its fan-in in one call' "$tenth" tasks "$fan"
measured 'abort the task that all of them wait for' "$tenth" tasks \
    "SELECT taskq.return_task(task_id, token, 'aborted') FROM taskq.own_tasks('w', 1, '{root}');"
measured 'bring them back with `retry_tasks`' "$tenth" tasks "SELECT taskq.retry_tasks('{root}');"
sql -c "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 1, '{root}')" >/dev/null
ms=$(work_off)
row "work off the fan-in, $workers workers, $batch at a time" "$tenth" tasks "$ms"
[ "$(sql -c "SELECT state FROM taskq.tasks WHERE id = 'end'")" = ready ] || die 'the end of the fan-in is not free'
sound 'the fan-in'

for form in "ready" "spontaneous"; do
    fresh
    sql -c "SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object(
                'id', i::text, 'action', 'work', 'spontaneous', '$form' = 'spontaneous' AND i > 1,
                'depends_on', CASE i WHEN 1 THEN '[]' ELSE jsonb_build_array((i - 1)::text) END))
              FROM generate_series(1, $tenth) AS i))" >/dev/null
    if [ "$form" = spontaneous ]; then
        measured 'a chain of spontaneous tasks passes' "$tenth" tasks \
            "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('w', 1, '{work}');"
        [ "$(left)" = 0 ] || die 'the chain of spontaneous tasks has not passed'
    else
        measured 'cancel the first of a chain' "$tenth" tasks "SELECT taskq.cancel_tasks('{1}');"
    fi
    sound "a $form chain"
done

wide=$((tenth / 10))
fresh
sql -c "SELECT count(*) FROM taskq.insert_tasks(taskq.chord(
            (SELECT jsonb_agg(jsonb_build_object('id', i::text, 'action', 'part')) FROM generate_series(1, $wide) AS i),
            '{\"id\": \"sum\", \"action\": \"sum\"}'))" \
    -c "SELECT count(*) FROM (SELECT array_agg(task_id) AS ids, array_agg(token) AS tokens FROM taskq.own_tasks('w', $wide, '{part}')) AS g,
               taskq.return_tasks(g.ids, g.tokens, result => jsonb_build_object('text', repeat('x', 100)))" >/dev/null
measured 'own a fan-in with results of 100 bytes each' "$wide" results \
    "SELECT jsonb_array_length(results) FROM taskq.own_tasks('w', 1, '{sum}', with_results => true);"

printf '\nPostgreSQL %s, %s cores, %s; the large graph took %s with its indexes.\n' \
    "$(sql -c 'SHOW server_version' | sed 's/ .*//')" "$(nproc)" "$(printf '%s, ' "${settings[@]}" | sed 's/, $//; s/=/ = /g')" "$size"
