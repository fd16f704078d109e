#!/usr/bin/env bash
# Runs the demo (examples/branch_export) on a private cluster that ends with it. `make demo` builds and installs
# first, and then calls this.
#
#   REPO=path or URL   the repository to export (default: this one)
#   REV=revision       the commit (default: HEAD)
#   WORKERS=n          worker processes (default: 4)
#   PG_CONFIG=path     the server to use (default: the one make installs into)
#
# Arguments are handed on to the program: see `branch_export --help`.
set -euo pipefail

die() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

root=$(cd "$(dirname "$0")/.." && pwd -P)
demo=$root/target/demo
cluster=$demo/cluster
program=${CARGO_TARGET_DIR:-$root/target}/release/branch_export

[ -x "$program" ] || die "$program is not built: run 'make demo'"
if [ -z "${PG_CONFIG:-}" ]; then
    PG_CONFIG=pg_config
    [ -x "$(pg_config --bindir 2>/dev/null)/postgres" ] || PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config
fi
export PG_CONFIG
"$PG_CONFIG" --bindir >/dev/null 2>&1 || die "$PG_CONFIG does not work: set PG_CONFIG"
PATH=$("$PG_CONFIG" --bindir):$PATH
command -v psql >/dev/null || die "psql is missing"

mkdir -p "$demo"
exec 9>"$demo/lock"
if command -v flock >/dev/null; then
    flock -n 9 || die "another demo is running in $demo"
fi

finish() {
    "$root/.ci/cluster.sh" stop "$cluster" 9>&- || true
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# The server must not inherit the lock: it may outlive this script, if that is killed.
"$root/.ci/cluster.sh" start "$cluster" 9>&-
settings=$("$root/.ci/cluster.sh" env "$cluster")
# shellcheck disable=SC2086,SC2163  # words of the form NAME=value
export $settings
unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS

psql -X -q -d postgres -v ON_ERROR_STOP=1 <<SQL || die "cannot make the demo's database"
SET client_min_messages = warning;
DROP DATABASE IF EXISTS branch_export WITH (FORCE);
CREATE DATABASE branch_export;
SQL
export PGDATABASE=branch_export
psql -X -q -v ON_ERROR_STOP=1 -c 'CREATE EXTENSION taskq' ||
    die "the extension cannot be created: is it installed into this server (make install PG_CONFIG=$PG_CONFIG)?"

# In the background, so that a signal to this script is heard at once; the program ends with it.
"$program" --repo "${REPO:-$root}" --rev "${REV:-HEAD}" --workers "${WORKERS:-4}" --dir "$demo/export" "$@" 9>&- &
child=$!
trap 'kill "$child" 2>/dev/null || true; wait "$child" 2>/dev/null || true; finish' EXIT
if wait "$child"; then
    printf '\nThe demo worked. The bucket is in %s,\n' "$demo/export/bucket"
    printf 'and its database comes back with: .ci/cluster.sh start target/demo/cluster; .ci/cluster.sh env target/demo/cluster\n'
else
    code=$?
    printf '\ndemo: failed. The logs of the workers are in %s, that of the server is %s\n' \
        "$demo/export/logs" "$cluster/log" >&2
    exit "$code"
fi
