#!/usr/bin/env bash
# The stages of `make test`.
#
#   test.sh all        installs what the tests need, then `make lint`, `make unit-test`, `make pg-test`,
#                      `make outside-test`, one after the other, and adds up what they counted
#   test.sh pg         pg_test/: tests that run inside a server, through cargo-pgrx
#   test.sh outside    tests/: tests over connections to a private cluster with the release build
#
#   PG_CONFIG=path     the server to test with (default: the first pg_config on the path)
#   T=own::order       only these: the file (pg) or test program (outside), and what a name has in it; or several
#                      programs: T='own flow'
#   READY=path         outside: the pg_config of a server of our own that has the extension already
#   WORK=folder        where logs and clusters go (default: target/test)
#
# Called by make. Both `pg` and `outside` install the extension into a private copy of the server, see server.sh.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
target=${CARGO_TARGET_DIR:-target}
work=${WORK:-$target/test}

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
    pg_config=${READY:-${PG_CONFIG:-pg_config}}
    command -v "$pg_config" >/dev/null || die "$pg_config does not exist: set PG_CONFIG, or run 'make setup'"
    private=${READY:-$(PG_CONFIG=$pg_config .ci/server.sh)}
    bindir=$("$private" --bindir)
    label=pg$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
    # Goes before cargo-pgrx's own register of servers, and is what the Makefile builds with.
    PGRX_PG_CONFIG_PATH=$("$pg_config" --bindir)/pg_config
    export PGRX_PG_CONFIG_PATH
}

# --- inside the server -------------------------------------------------------------------------------------------

pgdata=''
runas=()

# What an interrupted run would leave: a server and its data.
pg_finish() {
    local pid="$pgdata/${label#pg}/postmaster.pid"
    [ -n "$pgdata" ] || return 0
    if as_root test -e "$pid"; then
        as_root kill -QUIT "$(as_root head -n 1 "$pid")" 2>/dev/null || true
    fi
    as_root rm -rf "$pgdata"
    pgdata=''
}

# Everything is built against the real server, or pgrx would be compiled once more; only the test program itself,
# which installs the extension and starts a server, is shown the private one. Cargo runs it through this command.
as_private() {
    local target
    target=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    cat >"$work/cargo-pgrx" <<WRAPPER
#!/bin/sh
PGRX_PG_CONFIG_PATH='$PGRX_PG_CONFIG_PATH' exec cargo-pgrx "\$@"
WRAPPER
    chmod 755 "$work/cargo-pgrx"
    export "CARGO_TARGET_${target}_RUNNER=env PGRX_PG_CONFIG_PATH=$private CARGO_PGRX=$root/$work/cargo-pgrx"
}

pg() {
    local port=$((32200 + ${label#pg}))
    if (: </dev/tcp/127.0.0.1/$port) 2>/dev/null; then
        die "something listens on port $port already, which cargo-pgrx uses for its test server"
    fi
    mkdir -p "$work"
    pgdata=$(mktemp -d /tmp/taskq-pg-test-XXXXXX)
    trap pg_finish EXIT
    # The server refuses to run as root. Then cargo-pgrx runs it as `postgres`, through sudo.
    if [ "$(id -u)" -eq 0 ]; then
        runas=(--runas postgres)
        chown postgres "$pgdata"
    fi
    as_private
    # In the server a backtrace costs much and says nothing that the test's own message does not.
    env -u RUST_BACKTRACE USER="${USER:-$(id -un)}" RUST_TEST_THREADS=1 \
        cargo pgrx test "$label" --release --no-default-features --pgdata "$pgdata" "${runas[@]}" \
        "pg_test::${T:-}"
}

# --- from outside ------------------------------------------------------------------------------------------------

outside_finish() {
    PG_CONFIG=$private .ci/cluster.sh stop "$work/cluster"
}

outside() {
    local settings
    examples/clients/setup.sh
    [ -n "${READY:-}" ] || make_ install-private PG_CONFIG="$pg_config"
    trap outside_finish EXIT
    no_router=''
    PG_CONFIG=$private .ci/router.sh || no_router=1
    # Nothing here has to survive a power cut; test programs open many connections at once.
    export PG_CONFIG=$private
    .ci/cluster.sh start "$work/cluster" -c fsync=off -c full_page_writes=off -c max_connections=300 \
        -c max_prepared_transactions=50 -c max_locks_per_transaction=256 -c shared_buffers=256MB
    settings=$(.ci/cluster.sh env "$work/cluster")
    # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
    export $settings
    unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE
    PATH=$bindir:$PATH
    # shellcheck disable=SC2046  # words
    cargo test --release --locked -p taskq_tests --no-fail-fast $(selected) 2>&1 | tee "$work/outside.log" ||
        alone "$work/outside.log" || return 1
    if [ -n "$no_router" ]; then
        printf '\ntest: NOT RUN: the tests of the router (tests/tests/router): PL/Proxy is not to be had here, see above\n'
    fi
}

# Some tests have to be done within seconds, and all run side by side with others that use every core. The few that have
# failed are run once more, each alone; what fails again has failed, and what does not is named.
alone() {
    local failed suite name
    failed=$(sed -n -e 's|^ *Running tests/\([a-z_]*\)[/.].*|suite \1|p' -e 's/^test \([^ ]*\) \.\.\. FAILED$/test \1/p' "$1" |
        awk '$1 == "suite" { suite = $2 } $1 == "test" { print suite, $2 }')
    [ -n "$failed" ] && [ "$(wc -l <<<"$failed")" -le 10 ] || return 1
    # A program that died tells no results.
    [ "$(grep -cE '^ *(Running|Doc-tests) ' "$1")" -eq "$(grep -c '^test result: ' "$1")" ] || return 1
    while read -r suite name; do
        cargo test --release --locked -p taskq_tests --test "$suite" -- --exact "$name" </dev/null || return 1
    done <<<"$failed"
    printf '\ntest: failed beside others, and passed alone:\n%s\n' "$failed"
}

# T as cargo's arguments: `flow::limits` is the tests of the program `flow` with `limits` in their names.
selected() {
    local program
    case "${T:-}" in
        *::*) printf -- '--test %s %s\n' "${T%%::*}" "${T#*::}" ;;
        *) for program in ${T:-}; do printf -- '--test %s\n' "$program"; done ;;
    esac
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
    unset T
    for stage in lint unit-test pg-test outside-test; do
        printf '\n==> make %s\n' "$stage"
        if ! make_ "$stage" 2>&1 | tee -a "$log"; then
            printf '\ntest: make %s failed; %s so far\n' "$stage" "$(count "$log")" >&2
            exit 1
        fi
    done
    printf '\ntest: %s\n' "$(count "$log")"
    grep '^test: NOT RUN' "$log" || true
}

case "${1:-}" in
    all) all ;;
    pg) find_server && pg ;;
    outside) find_server && outside ;;
    *)
        sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
