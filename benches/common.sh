# shellcheck shell=bash disable=SC2034,SC2154
# What the benchmarks share: a private cluster, its databases, and the server's processor time and WAL. To be sourced by
# a script that has set `out`, the folder that it writes to; the working directory is the repository's.

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

benches=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

# --- the cluster -------------------------------------------------------------------------------------------------

# No fsync, so that the disk is not what is measured; no full pages, so that WAL is that of the steady state; no
# autovacuum, so that it does not fall into one measurement and not into the other: each begins with a VACUUM. Checkpoints
# come when they are asked for, between measurements.
#
# start_cluster [-c name=value ...]: starts it, and sets the environment for psql and pgbench.
start_cluster() {
    local settings
    pg_config=${PG_CONFIG:-pg_config}
    command -v "$pg_config" >/dev/null || die "$pg_config does not exist: set PG_CONFIG"
    export PG_CONFIG=$pg_config
    PATH=$("$pg_config" --bindir):$PATH
    [ -e "$("$pg_config" --sharedir)/extension/taskq.control" ] ||
        die "taskq is not installed in the server of $pg_config: see 'make install-private'"
    .ci/cluster.sh start "$out/cluster" -c fsync=off -c full_page_writes=off -c autovacuum=off \
        -c shared_buffers="${SHARED_BUFFERS:-1GB}" -c max_wal_size=8GB -c checkpoint_timeout=1h "$@"
    settings=$(.ci/cluster.sh env "$out/cluster")
    # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
    export $settings
    unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE
    postmaster=$(head -n 1 "$(sql postgres -c 'SHOW data_directory')/postmaster.pid")
}

# And removes it: it is some gigabytes of what can be made again.
stop_cluster() {
    local base
    .ci/cluster.sh stop "$out/cluster"
    base=$(cat "$out/cluster/base.path" 2>/dev/null || true)
    rm -rf "$out/cluster" ${base:+"$base"}
}

# sql DATABASE [psql's arguments]: the result alone, one field a line.
sql() {
    local database=$1
    shift
    psql -X -q -A -t -v ON_ERROR_STOP=1 -v here="$benches" -d "$database" "$@"
}

# new_database NAME [TEMPLATE]
new_database() {
    sql postgres -c "SET client_min_messages = warning" -c "DROP DATABASE IF EXISTS $1 WITH (FORCE)" \
        -c "CREATE DATABASE $1 TEMPLATE ${2:-template1}"
}

# --- what the server used ----------------------------------------------------------------------------------------

# Processor time of all processes of the cluster so far, in ticks: of those that live, and of those that the postmaster
# has buried.
cpu_ticks() {
    local most=0 sum
    # A backend that ends while its processes are read may be missed, as a child or among those that the postmaster has had:
    # the most of some readings counts.
    for _ in 1 2 3 4; do
        sleep 0.05
        sum=$({ cat /proc/[0-9]*/stat 2>/dev/null || true; } | awk -v postmaster="$postmaster" '
            {
                pid = $1
                sub(/^.*\) /, "") # the name may have spaces in it; what follows is: state, parent, ...
                if (pid == postmaster) sum += $12 + $13 + $14 + $15
                else if ($2 == postmaster) sum += $12 + $13
            }
            END { printf "%d\n", sum }')
        [ "$sum" -le "$most" ] || most=$sum
    done
    printf '%s\n' "$most"
}

ticks_per_second=$(getconf CLK_TCK)

wal_position() {
    sql postgres -c "SELECT pg_current_wal_insert_lsn() - '0/0'"
}
