#!/usr/bin/env bash
# Runs the demo (examples/branch_export) on several servers behind a router (examples/sharding): four private clusters that
# end with it. `make demo-shards` builds and installs first, and then calls this.
#
#   REPO=path or URL   the repository to export (default: this one)
#   REV=revision       the commit (default: HEAD)
#   WORKERS=n          worker processes (default: 4)
#   PG_CONFIG=path     the server to use: a private copy, with the router (see router.sh)
#
# Three branches are exported one after the other, each of which belongs to another shard. Committer and workers know the
# router and nothing else. In the midst of the last export its shard is stopped as by a crash, and started again. Arguments
# are handed on to the program: see `branch_export --help`.
set -euo pipefail

die() {
    printf 'demo-shards: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd -P)
demo=$root/target/demo-shards
program=${CARGO_TARGET_DIR:-$root/target}/release/branch_export
servers=(router shard-0 shard-1 shard-2)

[ -x "$program" ] || die "$program is not built: run 'make demo-shards'"
export PG_CONFIG=${PG_CONFIG:?run make demo-shards}
PATH=$("$PG_CONFIG" --bindir):$PATH
mkdir -p "$demo"
exec 9>"$demo/lock"
if command -v flock >/dev/null; then
    flock -n 9 || die "another demo is running in $demo"
fi

outage=''
finish() {
    local server
    [ -z "$outage" ] || kill "$outage" 2>/dev/null || true
    for server in "${servers[@]}"; do
        "$root/.ci/cluster.sh" stop "$demo/$server" 9>&- || true
    done
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# psql on the database export of a server, or on another one: at SERVER [-d DATABASE] ...
at() {
    local server=$1
    shift
    # shellcheck disable=SC2046  # words of the form NAME=value
    env $("$root/.ci/cluster.sh" env "$demo/$server") psql -X -q -v ON_ERROR_STOP=1 -d export "$@"
}

host_of() {
    "$root/.ci/cluster.sh" env "$demo/$1" | tr ' ' '\n' | sed -n 's/^PGHOST=//p'
}

unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE
for server in "${servers[@]}"; do
    "$root/.ci/cluster.sh" start "$demo/$server" 9>&-
    at "$server" -d postgres -c 'SET client_min_messages = warning' \
        -c 'DROP DATABASE IF EXISTS export WITH (FORCE)' -c 'CREATE DATABASE export'
done

# A shard is a plain taskq with a number.
for n in 0 1 2; do
    at "shard-$n" -At -o /dev/null -c 'CREATE EXTENSION taskq' -c "SELECT taskq.set_shard($n)"
done

# The router knows where they are.
at router -At -o /dev/null -c 'CREATE EXTENSION taskq_router CASCADE' -c "SELECT taskq_router.add_shards(
    'host=$(host_of shard-0) dbname=export', 'host=$(host_of shard-1) dbname=export', 'host=$(host_of shard-2) dbname=export')" 2>/dev/null
printf 'the routing table:\n'
at router -c 'SELECT * FROM taskq_router.ranges' -c 'SELECT * FROM taskq_router.look()'

# --- three exports, and an accident ------------------------------------------------------------------------------

tell() {
    printf '   *** %s\n' "$*"
}

# What a client is told, on one line.
answer_of() {
    at router -At -v SHOW_CONTEXT=never -c "$1" 2>&1 | tr '\n\t' '  ' || true
}

# A shard goes in the midst of the second export of its branch, and comes back.
accident() {
    local n=$1 branch=$2 other=$3 done_so_far=0
    until [ "$done_so_far" -ge 100 ]; do
        sleep 0.2
        done_so_far=$(at router -At -c "SELECT count(*) FROM branch_export.ledger WHERE export =
            (SELECT max(export) FROM branch_export.export WHERE branch = '$branch' HAVING count(*) = 2)" || echo 0)
    done
    "$root/.ci/cluster.sh" stop-now "$demo/shard-$n" 9>&-
    tell "shard $n is stopped as by a crash (pg_ctl -m immediate), with tasks in progress"
    tell "a task for it: $(answer_of "SELECT taskq.insert_task('news', 'tell', group_id => '$branch')")"
    tell "a task for another shard is inserted, owned and returned: $(answer_of "SELECT taskq.insert_task('other-news', 'tell', group_id => '$other')") $(
        answer_of "SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('teller', 1, '{tell}', '1 minute', wait => '5 seconds')")"
    sleep 2
    "$root/.ci/cluster.sh" restart "$demo/shard-$n" 9>&-
    tell "shard $n is started again; nobody tells the workers, who go on by themselves"
}

settings=$("$root/.ci/cluster.sh" env "$demo/router")
# shellcheck disable=SC2086,SC2163  # words of the form NAME=value
export $settings PGDATABASE=export
branches=()
for n in 0 1 2; do
    branch=$(at router -At -c "SELECT b FROM unnest('{main,dev,stable,next,fix,docs,perf,beta,old,try}'::text[]) AS b
                                WHERE taskq_router.shard_for(b) = $n LIMIT 1")
    branches+=("$branch")
    printf '\n==> branch %s: it belongs to shard %s\n\n' "$branch" "$n"
    "$program" --repo "${REPO:-$root}" --rev "${REV:-HEAD}" --branch "$branch" --workers "${WORKERS:-4}" \
        --dir "$demo/export-$branch" --latency-ms 5 --lease-ms 5000 "$@" 9>&- &
    child=$!
    trap 'kill "$child" 2>/dev/null || true; wait "$child" 2>/dev/null || true; finish' EXIT
    if [ "$n" -eq 2 ]; then
        accident "$n" "$branch" "${branches[0]}" 9>&- &
        outage=$!
    fi
    wait "$child" || die "failed. The logs of the workers are in $demo/export-$branch/logs, those of the servers are $demo/*/log"
    trap finish EXIT
done
wait "$outage" || die "the accident of shard 2 has failed"
outage=''

# --- what is where -----------------------------------------------------------------------------------------------

printf '\nwhat each server has (a shard is asked directly; the router has no task):\n\n'
printf '%-8s %-8s %10s %8s %10s %16s\n' server branch completed aborted unsettled 'tried again'
for n in 0 1 2; do
    at "shard-$n" -At -F ' ' -c "SELECT group_id, count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'aborted'),
            count(*) FILTER (WHERE settled_at IS NULL), count(*) FILTER (WHERE num_tries > 1)
       FROM taskq.tasks WHERE action <> 'tell' GROUP BY 1 ORDER BY 1" |
        while read -r branch completed aborted unsettled again; do
            printf '%-8s %-8s %10s %8s %10s %16s\n' "shard-$n" "$branch" "$completed" "$aborted" "$unsettled" "$again"
        done
done
for n in 0 1 2; do
    found=$(at "shard-$n" -At -c "SELECT string_agg(DISTINCT group_id, ' ') FROM taskq.tasks WHERE action <> 'tell'")
    [ "$found" = "${branches[$n]}" ] || die "shard $n has the branches: $found"
done
all=$(for n in 0 1 2; do at "shard-$n" -At -c 'SELECT id FROM taskq.tasks'; done | sort)
[ -z "$(uniq -d <<<"$all")" ] || die "tasks that are on two shards: $(uniq -d <<<"$all" | head -n 3)"
recorded=$(at router -At -c "SELECT task_id FROM branch_export.ledger GROUP BY 1" | sort)
missing=$(comm -13 <(printf '%s\n' "$all") <(printf '%s\n' "$recorded"))
[ -z "$missing" ] || die "recorded as done, and on no shard: $missing"
printf '\n%s tasks, each on one shard, each recorded as done; each object of the three buckets was compared with git above.\n' "$(wc -l <<<"$recorded")"
printf '\nThe demo worked.\n'
