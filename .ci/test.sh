#!/usr/bin/env bash
# The stages of `make test`.
#
#   test.sh all        installs what the tests need, then `make lint`, `make unit-test`, `make pg-test`,
#                      `make outside-test`, one after the other, and adds up what they counted
#   test.sh pg         pg_test/: tests that run inside a server, through cargo-pgrx
#   test.sh outside    tests/: tests over connections to a private cluster with the release build
#
#   PG_CONFIG=path     the server to test with (default: the first pg_config on the path)
#
# Called by make. Works as root and, where the server's folders are not the user's own, through sudo. Both `pg`
# and `outside` install the extension into the server; the release build is what stays there.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
target=${CARGO_TARGET_DIR:-target}
work=$target/test

die() {
    printf 'test: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

make_() {
    # The caller's -j or -k is not meant for the commands in here.
    MAKEFLAGS='' "${MAKE:-make}" --no-print-directory "$@"
}

# --- the server under test ---------------------------------------------------------------------------------------

find_server() {
    pg_config=${PG_CONFIG:-pg_config}
    command -v "$pg_config" >/dev/null || die "$pg_config does not exist: set PG_CONFIG, or run 'make setup'"
    bindir=$("$pg_config" --bindir)
    pkglibdir=$("$pg_config" --pkglibdir)
    label=pg$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
    export PG_CONFIG=$pg_config
    # Goes before cargo-pgrx's own register of servers, and is what the Makefile builds with.
    PGRX_PG_CONFIG_PATH=$(command -v "$pg_config")
    export PGRX_PG_CONFIG_PATH
}

# Whether this user may put files into the server's folders.
may_install() {
    [ -w "$pkglibdir" ] && [ -w "$("$pg_config" --sharedir)/extension" ]
}

install_release() {
    if may_install; then
        make_ install PG_CONFIG="$pg_config"
    else
        # Built as this user, copied as root: cargo must leave no files of root's behind.
        rm -rf "$work/root"
        make_ install PG_CONFIG="$pg_config" DESTDIR="$root/$work/root"
        as_root cp -r --remove-destination "$work/root/." /
    fi
}

# --- inside the server -------------------------------------------------------------------------------------------

pgdata=''
runas=()

# What an interrupted run would leave: a server, its data, and the test build in the place of the release build.
pg_finish() {
    local pid="$pgdata/${label#pg}/postmaster.pid"
    [ -n "$pgdata" ] || return 0
    if as_root test -e "$pid"; then
        as_root kill -QUIT "$(as_root head -n 1 "$pid")" 2>/dev/null || true
    fi
    as_root rm -rf "$pgdata"
    pgdata=''
    install_release >"$work/install.log" 2>&1 || { cat "$work/install.log" >&2; return 1; }
}

pg() {
    local port=$((32200 + ${label#pg}))
    if (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; then
        die "something listens on port $port already, which cargo-pgrx uses for its test server"
    fi
    mkdir -p "$work"
    pgdata=$(mktemp -d /tmp/taskq-pg-test-XXXXXX)
    trap pg_finish EXIT
    # The server refuses to run as root. Then, and where the server's folders are not ours, cargo-pgrx runs it as
    # `postgres` and copies the extension into it, both through sudo.
    if [ "$(id -u)" -eq 0 ] || ! may_install; then
        runas=(--runas postgres)
        as_root chown postgres "$pgdata"
    fi
    # cargo-pgrx copies over the library in place, which would change it under servers that have it loaded.
    as_root rm -f "$pkglibdir/taskq.so"
    # In the server a backtrace costs much and says nothing that the test's own message does not.
    env -u RUST_BACKTRACE USER="${USER:-$(id -un)}" RUST_TEST_THREADS=1 \
        cargo pgrx test "$label" --release --no-default-features --pgdata "$pgdata" "${runas[@]}" pg_test::
}

# --- from outside ------------------------------------------------------------------------------------------------

outside_finish() {
    .ci/cluster.sh stop "$work/cluster"
}

outside() {
    local settings
    examples/clients/setup.sh
    install_release
    trap outside_finish EXIT
    # Nothing here has to survive a power cut; test programs open many connections at once.
    .ci/cluster.sh start "$work/cluster" -c fsync=off -c full_page_writes=off -c max_connections=300 \
        -c max_prepared_transactions=50 -c max_locks_per_transaction=256 -c shared_buffers=256MB
    settings=$(.ci/cluster.sh env "$work/cluster")
    # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
    export $settings
    unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE
    PATH=$bindir:$PATH
    cargo test --release --locked -p taskq_tests --no-fail-fast
}

# --- everything --------------------------------------------------------------------------------------------------

# Adds up the lines that each test program ends with.
count() {
    sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$1" |
        awk '{ passed += $1; failed += $2; ignored += $3 }
             END { printf "%d passed, %d failed, %d ignored", passed, failed, ignored }'
}

all() {
    local stage log=$work/test.log
    .ci/setup.sh test
    mkdir -p "$work"
    : >"$log"
    for stage in lint unit-test pg-test outside-test; do
        printf '\n==> make %s\n' "$stage"
        if ! make_ "$stage" 2>&1 | tee -a "$log"; then
            printf '\ntest: make %s failed; %s so far\n' "$stage" "$(count "$log")" >&2
            exit 1
        fi
    done
    printf '\ntest: %s\n' "$(count "$log")"
}

case "${1:-}" in
    all) all ;;
    pg) find_server && pg ;;
    outside) find_server && outside ;;
    *)
        sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
