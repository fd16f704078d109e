#!/usr/bin/env bash
# The stages of `make test`.
#
#   test.sh all          installs what the tests need; then `make outside-test`, and beside that `make lint`, `make unit-test`,
#                        `make pg-test` and `make packages-test`; adds up what they counted
#   test.sh everything   the same with the programs and tests that are long by nature: `make test-all`
#   test.sh unit         tests of the pure parts, and of the models
#   test.sh pg           pg_test/: tests that run inside a server
#   test.sh outside      tests/: tests over connections to private clusters with the release build
#   test.sh packages     clients/: the packages of Python and TypeScript, as their users install them
#
#   PG_CONFIG=path       the server to test with (default: the first pg_config on the path)
#   T=own::order         only these: the file (pg) or test program (outside), and what a name has in it; or several
#                        programs: T='own flow'; or T=all. Without T `outside` leaves out what is long by nature
#   READY=path           outside: the pg_config of a server of our own that has the extension already
#   WORK=folder          where logs and clusters go (default: target/test)
#
# Called by make. Both `pg` and `outside` install the extension into private copies of the server, see server.sh. At the end
# the slowest thirty tests are printed; times.tsv has all of them.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
target=${CARGO_TARGET_DIR:-target}
work=${WORK:-$target/test}

# Storms and faults at random, servers that are lost, and what wants the tools of many languages.
LONG='clients crash hostile isolation recover torture'

# The programs run in lanes: side by side, each lane on a cluster of its own, one program after the other. Alone on theirs are the
# tests of sleeping calls, and of what any transaction of a cluster disturbs.
lane_of() {
    case " $LONG " in *" $1 "*) echo long && return ;; esac
    case $1 in
        waiting | tender | own | marks | signals | background) echo quiet ;;
        *) echo rest ;;
    esac
}

# Most tests wait for each other's connections, rather than compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-6}

die() {
    printf 'test: %s\n' "$*" >&2
    exit 1
}

make_() {
    # The caller's -j or -k is not meant for the commands in here.
    MAKEFLAGS='' "${MAKE:-make}" --no-print-directory "$@"
}

# --- the server under test ---------------------------------------------------------------------------------------

find_server() {
    pg_config=${READY:-${PG_CONFIG:-pg_config}}
    command -v "$pg_config" >/dev/null || die "$pg_config does not exist: set PG_CONFIG, or run 'make setup'"
    major=$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
    # What the Makefile builds with.
    PGRX_PG_CONFIG_PATH=$("$pg_config" --bindir)/pg_config
    export PGRX_PG_CONFIG_PATH
    mkdir -p "$work"
}

# Where the data of clusters go: into memory if there is much of it. Each test has a database of its own, of some 400 files, and
# to make a file costs ext4 a long search where many have just been removed: a quarter of what the servers compute.
in_memory() {
    local memory=/dev/shm mib
    mib=$({ awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo; df --output=avail -m "$memory" | tail -n 1; } 2>/dev/null |
        sort -n | head -n 1)
    [ "${mib:-0}" -lt 12000 ] || printf '%s\n' "$memory"
}

# Starts clusters of these names with these settings. Nothing in them has to survive a power cut.
clusters=()
start_clusters() {
    local name pid pids=() memory
    memory=$(in_memory)
    read -ra clusters <<<"$1"
    shift
    trap stop_clusters EXIT
    for name in "${clusters[@]}"; do
        MEMORY=$memory PG_CONFIG=$private .ci/cluster.sh start "$work/$name" -c fsync=off -c full_page_writes=off "$@" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
}

# Also those of an interrupted run: no test goes on without its server. Nothing but logs stays.
stop_clusters() {
    local name
    for name in "${clusters[@]}"; do
        PG_CONFIG=$private .ci/cluster.sh remove "$work/$name"
    done
}

# How to reach a cluster, and nothing else.
enter() {
    local settings
    settings=$(PG_CONFIG=$private .ci/cluster.sh env "$work/$1")
    # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
    export $settings PG_CONFIG=$private
    unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE
    PATH=$("$private" --bindir):$PATH
}

# Our code that is not optimized is built in a fifth of the time. That of others is built once for everything.
SOON=(--config profile.release.package.taskq.opt-level=0)

# --- test programs -----------------------------------------------------------------------------------------------

# Builds the test programs that cargo is asked for, and prints their names and paths.
built() {
    local path name
    cargo test --release --locked --no-run "$@" 2>&1 | tee "$work/build.log" >&2
    sed -n 's/^ *Executable .* (\(.*\))$/\1/p' "$work/build.log" | while read -r path; do
        name=${path##*/}
        printf '%s %s\n' "${name%-*}" "$(realpath "$path")"
    done
}

# Runs one in a folder, as cargo does, with these arguments. That it tells how long each test took is an unstable option of the
# harness, which asks for a name in the environment; the compiler has nothing to do with it here.
run() {
    local name=$1 path=$2 folder=$3
    shift 3
    printf '     Running %s (%s)\n' "$name" "${path#"$root"/}"
    (cd "$folder" && RUSTC_BOOTSTRAP=1 "$path" -Z unstable-options --report-time "$@") </dev/null 2>&1
}

# What cargo would have printed.
without_times() {
    sed -u 's/^\(test .* \.\.\. [a-zA-Z]*\) <[0-9.]*s>$/\1/'
}

# Seconds, program, test.
keep_times() {
    awk -v OFS='\t' '$1 == "Running" { program = $2; sub("tests/", "", program) }
        $1 == "test" && match($0, /<[0-9.]+s>$/) { print substr($0, RSTART + 1, RLENGTH - 3), program, $2 }' "$1" >>"$TIMES"
}

slowest() {
    printf '\ntest: the slowest of %d tests, in seconds (all are in %s):\n' "$(wc -l <"$TIMES")" "$TIMES"
    sort -rn "$TIMES" | awk -F'\t' 'NR <= 30 { printf "%8.2f  %s  %s\n", $1, $2, $3 }'
}

# --- the pure parts ----------------------------------------------------------------------------------------------

unit() {
    local name path log=$work/unit.log result=0 long=${T:+--include-ignored}
    built -p taskq --lib --no-default-features --features "pg$major" "${SOON[@]}" >"$work/unit.list"
    built -p branch_export -p taskq_models -p taskq_rules >>"$work/unit.list"
    : >"$log"
    while read -r name path; do
        # shellcheck disable=SC2086  # an argument, or none
        run "$name" "$path" "$(folder_of "$name")" --skip pg_test:: $long | tee -a "$log" | without_times || result=1
    done <"$work/unit.list"
    keep_times "$log"
    return "$result"
}

folder_of() {
    case $1 in
        branch_export) echo examples/branch_export ;;
        taskq_models) echo tests/models ;;
        taskq_rules) echo tests/rules ;;
        *) echo . ;;
    esac
}

# --- inside the server -------------------------------------------------------------------------------------------

# The library with the tests in it goes into a server of its own.
install_tests() {
    cargo build --release --locked --example taskq_pg_test --no-default-features --features "pg$major pg_test" "${SOON[@]}"
    private=$(COPY=pg_test PG_CONFIG=$pg_config .ci/server.sh)
    make_ stage put PG_CONFIG="$pg_config" INTO="$private" DESTDIR= LIBRARY="$target/release/examples/libtaskq_pg_test.so"
}

pg() {
    local name path result=0
    # All of them, for this as well as for the programs from outside.
    [ "${T:-}" != all ] || T=''
    install_tests
    built -p taskq --lib --no-default-features --features "pg$major" "${SOON[@]}" >"$work/pg.list"
    start_clusters pg -c autovacuum=off -c jit=off
    enter pg
    psql -X -q -v ON_ERROR_STOP=1 -d postgres -c 'SET client_min_messages = error' -c 'DROP DATABASE IF EXISTS inside' \
        -c 'CREATE DATABASE inside' -c '\c inside' -c 'CREATE EXTENSION taskq' -c 'CREATE SCHEMA tests'
    read -r name path <"$work/pg.list"
    # In the server a backtrace costs much and says nothing that the test's own message does not.
    PGDATABASE=inside RUST_TEST_THREADS=1 run pg_test "$path" . "pg_test::${T:-}" | tee "$work/pg.log" | without_times || result=1
    keep_times "$work/pg.log"
    return "$result"
}

# --- from outside ------------------------------------------------------------------------------------------------

wanted() {
    local path
    case "${T:-}" in
        *::*) printf '%s\n' "${T%%::*}" ;;
        all | '')
            for path in tests/tests/*; do
                path=$(basename "$path" .rs)
                [ -z "${T:-}" ] && [ "$(lane_of "$path")" = long ] || printf '%s\n' "$path"
            done
            ;;
        *) printf '%s\n' $T ;;
    esac
}

build_outside() {
    private=${READY:-$(PG_CONFIG=$pg_config .ci/server.sh)}
    [ -n "${READY:-}" ] || make_ install-private PG_CONFIG="$pg_config"
    built -p taskq_tests $(wanted | sed 's/^/--test=/') >"$work/outside.list"
    [ -s "$work/outside.list" ] || die "cargo has built no test program"
}

# What some of them need is installed for them alone.
prepare() {
    local programs
    programs=" $(cut -d ' ' -f 1 "$work/outside.list" | tr '\n' ' ')"
    case $programs in
        *" clients "*) examples/clients/setup.sh ;;
        *" pages "*) examples/clients/setup.sh python ;;
    esac
    case $programs in *" hostile "*) .ci/setup.sh smith ;; esac
}

# One program after the other. What one says is shown when it has ended, or at once if it is the only one. Tests that are long (they
# are marked `#[ignore = "long"]`) are run where a program is asked for by its name, and by `make test-all`.
lane() {
    local name path log long=${T:+--include-ignored}
    enter "$1"
    while read -r name path; do
        log=$work/logs/$name.log
        if [ "$(wc -l <"$work/outside.list")" -eq 1 ]; then
            run "tests/$name" "$path" tests $long ${filter:+"$filter"} | tee "$log" | without_times || true
        else
            run "tests/$name" "$path" tests $long >"$log" || true
            without_times <"$log" | flock "$work/logs" cat
        fi
    done
}

outside() {
    local name path lane lanes filter=''
    if [ -z "${BUILT:-}" ]; then
        build_outside
    fi
    private=${READY:-$(PG_CONFIG=$pg_config .ci/server.sh)}
    [[ ${T:-} != *::* ]] || filter=${T#*::}
    prepare
    rm -rf "$work/logs" "$work"/*.lane
    mkdir -p "$work/logs"
    while read -r name path; do
        printf '%s %s\n' "$name" "$path" >>"$work/$(lane_of "$name").lane"
    done <"$work/outside.list"
    lanes=$(basename -s .lane "$work"/*.lane | tr '\n' ' ')
    # A quarter of the processes does what is due for waiting calls, one for each database: each test has one of its own.
    start_clusters "$lanes" -c max_connections=300 -c max_prepared_transactions=50 -c max_locks_per_transaction=256 \
        -c shared_buffers=128MB -c jit=off -c max_worker_processes=48
    # Held until the lanes have ended, and not by what they leave behind.
    exec 8>"$work/outside.lock"
    flock 8
    for lane in $lanes; do
        lane "$lane" <"$work/$lane.lane" 8>&- &
    done
    wait
    exec 8>&-
    cat "$work/logs"/*.log >"$work/outside.log"
    keep_times "$work/outside.log"
    alone
}

# Some tests have to be done within seconds, and all run side by side with others that use every core. The few that have
# failed are run once more, each alone; what fails again has failed, and what does not is named.
alone() {
    local log name test path failed again=''
    for log in "$work/logs"/*.log; do
        # A program that died tells no results.
        grep -q '^test result: ' "$log" || die "$(basename "$log" .log) ended without a result, see $log"
    done
    failed=$(awk '$1 == "Running" { sub("tests/", "", $2); program = $2 }
        /^test .* \.\.\. FAILED/ { print program, $2 }' "$work/outside.log")
    [ -n "$failed" ] || return 0
    [ "$(wc -l <<<"$failed")" -le 20 ] || return 1
    # What goes on aside holds this lock to its end.
    flock "$work/aside.lock" true
    while read -r name test; do
        path=$(sed -n "s/^$name //p" "$work/outside.list")
        if (enter "$(lane_of "$name")" && run "tests/$name" "$path" tests --include-ignored --exact "$test") >"$work/alone.log"; then
            printf '\ntest: failed beside others, and passed alone: %s %s\n' "$name" "$test"
        else
            grep -v '^test result' "$work/alone.log" | without_times
            again=1
        fi
    done <<<"$failed"
    [ -z "$again" ]
}

# --- the client packages -----------------------------------------------------------------------------------------

packages() {
    private=${READY:-$(PG_CONFIG=$pg_config .ci/server.sh)}
    [ -n "${READY:-}${BUILT:-}" ] || make_ install-private PG_CONFIG="$pg_config"
    start_clusters packages -c max_connections=300 -c jit=off -c max_worker_processes=48
    # What fails beside the tests from outside is run once more after them.
    (enter packages && AFTER=$(realpath "$work")/outside.lock .ci/packages.sh test)
}

# --- everything --------------------------------------------------------------------------------------------------

# Adds up the lines that each test program ends with. What failed beside others and passed alone has passed.
count() {
    awk '/^test result: / { passed += $4; failed += $6; ignored += $8 }
         /^test: failed beside others, and passed alone: / { passed++; failed-- }
         END { printf "%d passed, %d failed%s", passed, failed, ignored ? ", " ignored " ignored" : "" }' "$1"
}

# Tests wait most of the time. What computes (lint, unit tests, models, the library with the tests in it) goes on beside those
# from outside, with what they leave of the processor; and so do the tests of the packages, which wait as well.
aside() {
    local name nice=$1
    shift
    # The kernel divides the processor among sessions first; each server is one.
    { echo "$nice" >"/proc/$$/autogroup"; } 2>/dev/null || true
    renice -n "$nice" -p $$ >/dev/null
    exec 9>"$work/aside.lock"
    flock -s 9
    for name in "$@"; do
        printf '\n==> make %s\n' "$name"
        make_ "$name" || { printf '\ntest: make %s failed\n' "$name"; return 1; }
    done
}

all() {
    local pid pids=() result=0
    find_server
    examples/clients/setup.sh python node >"$work/setup.log" 2>&1 &
    pid=$!
    build_outside
    # Two that install packages of the machine at the same time refuse each other.
    wait "$pid" || { cat "$work/setup.log"; return 1; }
    setsid "$0" aside 19 lint unit-test pg-test >"$work/aside.log" 2>&1 &
    pids+=($!)
    BUILT=1 setsid "$0" aside 5 packages-test >"$work/aside.packages.log" 2>&1 &
    pids+=($!)
    # shellcheck disable=SC2064  # as they are now
    trap "kill -- ${pids[*]/#/-} 2>/dev/null || true" EXIT
    printf '\n==> make outside-test\n'
    BUILT=1 "$0" outside || { printf '\ntest: make outside-test failed\n'; result=1; }
    for pid in "${pids[@]}"; do
        wait "$pid" || result=1
    done
    trap - EXIT
    cat "$work/aside.log" "$work/aside.packages.log"
    return "$result"
}

# What make has been asked for keeps the times, and shows them at its end.
asked() {
    local result=0
    [ -n "${READY:-}" ] || .ci/setup.sh test
    mkdir -p "$work"
    export TIMES=$work/times.tsv
    : >"$TIMES"
    "$0" "$1" || result=1
    slowest
    return "$result"
}

case "${1:-}" in
    all | everything)
        unset T
        [ "$1" = all ] || export T=all
        result=0
        mkdir -p "$work"
        asked whole 2>&1 | tee "$work/test.log" || result=1
        grep '^test: NOT RUN' "$work/test.log" || true
        printf '\ntest: %s\n' "$(count "$work/test.log")"
        exit "$result"
        ;;
    whole) all ;;
    aside) shift && aside "$@" ;;
    unit | pg | outside | packages)
        if [ -n "${TIMES:-}" ]; then
            find_server
            "$1"
        else
            asked "$1"
        fi
        ;;
    *)
        sed -n '2,20s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
