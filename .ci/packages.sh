#!/usr/bin/env bash
# The client packages: clients/python and clients/typescript.
#
#   packages.sh build    builds the wheel and the npm archive into target/packages
#   packages.sh wheel    builds the wheel alone
#   packages.sh test     builds each, installs what was built into a fresh folder, and tests that; of the server with the extension that
#                        PG_CONFIG, PGHOST and the like name
#
#   packages.sh bench    measures them beside other packages of their languages, on a cluster of its own; ROUNDS=3, and ALONE is a
#                        command that each part is run through, such as 'flock FILE', for machines on which others measure
#
# Installs what is missing of Python with venv and of Node with npm. At the end of a test stands a line as those of the other tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# Into a folder that is made anew.
wheel() {
    to=${CARGO_TARGET_DIR:-target}/packages
    rm -rf "$to"
    mkdir -p "$to"
    to=$(cd "$to" && pwd -P)
    python3 -m venv "$to/venv"
    "$to/venv/bin/pip" install --quiet --disable-pip-version-check build
    "$to/venv/bin/python" -m build --outdir "$to" clients/python >"$to/build.log"
    rm -rf "$to/venv" "$to/build.log"
}

build() {
    local to
    wheel
    (
        cd clients/typescript
        npm ci --no-audit --no-fund --loglevel=error
        npm pack --loglevel=error --pack-destination "$to" >/dev/null
    )
    ls -l "$to"
}

# One package; what it says goes through, and what it counts is told in one line.
try() {
    local name=$1 passed failed result=0 log
    shift
    log=$(mktemp)
    printf '     Running clients/%s\n' "$name"
    "clients/$name/test.sh" "$@" 2>&1 | tee "$log" || result=1
    # Of pytest: "3 failed, 120 passed"; of node: "# pass 120", "# fail 0".
    passed=$(sed -nE 's/^(.*[ =])?([0-9]+) passed.*/\2/p; s/^[#ℹ] pass ([0-9]+)$/\1/p' "$log" | awk '{ n += $1 } END { print n }')
    failed=$(sed -nE 's/^(.*[ =])?([0-9]+) failed.*/\2/p; s/^[#ℹ] fail ([0-9]+)$/\1/p' "$log" | tail -n 1)
    rm -f "$log"
    # What failed first, and passed when it was run again.
    [ "$result" -ne 0 ] || failed=0
    [ "$result" -eq 0 ] || [ "${failed:-0}" -gt 0 ] || failed=1
    printf '\ntest result: %s. %d passed; %d failed; 0 ignored\n' \
        "$([ "$result" -eq 0 ] && echo ok || echo FAILED)" "${passed:-0}" "${failed:-0}"
    return "$result"
}

bench() {
    local work=${CARGO_TARGET_DIR:-target}/bench/packages
    mkdir -p "$work"
    # Fifty workers of some queues have ten connections each.
    .ci/cluster.sh start "$work/cluster" -c fsync=off -c max_connections=1000 -c shared_buffers=512MB
    # shellcheck disable=SC2064  # as it is now
    trap "$PWD/.ci/cluster.sh stop $(printf %q "$work/cluster")" EXIT
    # shellcheck disable=SC2046  # words of the form NAME=value
    export $(.ci/cluster.sh env "$work/cluster")
    unset PGSERVICE PGHOSTADDR PGPASSWORD PGOPTIONS PGDATABASE
    export ROUNDS=${ROUNDS:-3} ALONE=${ALONE:-}
    clients/python/benches/run.sh
    echo
    clients/typescript/benches/run.sh
}

case "${1:-}" in
    build)
        examples/clients/setup.sh venv npm
        build
        ;;
    wheel)
        examples/clients/setup.sh venv
        wheel
        ls -l "$to"
        ;;
    bench)
        examples/clients/setup.sh python node
        bench
        ;;
    test)
        examples/clients/setup.sh python node chromium
        # Side by side: both wait most of the time.
        result=0
        log=$(mktemp)
        try typescript >"$log" &
        try python || result=1
        wait "$!" || result=1
        cat "$log"
        rm -f "$log"
        exit "$result"
        ;;
    *)
        sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
