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
# router and nothing else. Arguments are handed on to the program: see `branch_export --help`.
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

finish() {
    local server
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

settings=$("$root/.ci/cluster.sh" env "$demo/router")
# shellcheck disable=SC2086,SC2163  # words of the form NAME=value
export $settings PGDATABASE=export
for n in 0 1 2; do
    branch=$(at router -At -c "SELECT b FROM unnest('{main,dev,stable,next,fix,docs,perf,beta,old,try}'::text[]) AS b
                                WHERE taskq_router.shard_for(b) = $n LIMIT 1")
    printf '\n==> branch %s: it belongs to shard %s\n\n' "$branch" "$n"
    "$program" --repo "${REPO:-$root}" --rev "${REV:-HEAD}" --branch "$branch" --workers "${WORKERS:-4}" \
        --dir "$demo/export-$branch" --latency-ms 5 "$@" 9>&- &
    child=$!
    trap 'kill "$child" 2>/dev/null || true; wait "$child" 2>/dev/null || true; finish' EXIT
    wait "$child" || die "failed. The logs of the workers are in $demo/export-$branch/logs, those of the servers are $demo/*/log"
    trap finish EXIT
done

printf '\nwhere the tasks are, which only the routing table knows:\n'
for n in 0 1 2; do
    at "shard-$n" -At -F ' ' -c "SELECT 'shard $n:', group_id, completed || ' completed,', aborted || ' aborted' FROM taskq.groups"
done
elsewhere=$(for n in 0 1 2; do at "shard-$n" -At -c 'SELECT count(DISTINCT group_id) FROM taskq.tasks'; done | sort -u)
[ "$elsewhere" = 1 ] || die "a branch is on a shard that it does not belong to"
printf '\nThe demo worked.\n'
