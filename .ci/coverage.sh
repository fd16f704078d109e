#!/usr/bin/env bash
# What the tests reach: lines and branches of src, per module. `make coverage` calls this.
#
#   T='own flow'    the test programs to run (default: all from outside, and the unit tests as `unit`)
#
# The library is built once more, in target/coverage, with counters in its own code and in no other code, and installed
# into a private server of its own. Each process of a server adds its counters, when it ends, to files of which each
# test program has its own; a process that is killed adds none. Tests inside a server (pg_test/) are not counted: their
# library is another one.
#
# Left behind in target/coverage: report.txt (per file), lines.txt (the source with counts), missed.txt (the lines that
# nothing has reached), and table.txt (per module), which is printed, too.
set -euo pipefail

die() {
    printf 'coverage: %s\n' "$*" >&2
    exit 1
}

cd "$(dirname "$0")/.."
root=$(pwd -P)
target=${CARGO_TARGET_DIR:-target}
to=$root/$target/coverage
pg_config=${PG_CONFIG:-pg_config}
mkdir -p "$to"

# Those of the compiler itself: the format of the counters changes with LLVM.
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
[ -x "$tools/llvm-cov" ] || die "llvm-cov is missing: rustup component add llvm-tools"

# Where the server's user can write, whichever user that is.
profiles=$(mktemp -d /tmp/taskq-coverage-XXXXXX)
chmod 1777 "$profiles"
trap 'rm -rf "$profiles"' EXIT

# --- the library with counters -------------------------------------------------------------------------------------

# Cargo runs this in the place of rustc for the crates of the workspace. Branches are counted by an option that is not
# stable yet; nothing but this build depends on it. Little optimized: the counters are where the source has them anyway.
make_wrapper() {
    cat >"$to/rustc" <<'WRAPPER'
#!/bin/sh
if [ "$CARGO_CRATE_NAME" = taskq ]; then
    RUSTC_BOOTSTRAP=1 exec "$@" -C instrument-coverage -Z coverage-options=branch -C opt-level=1
fi
exec "$@"
WRAPPER
    chmod 755 "$to/rustc"
}

counted() {
    RUSTC_WORKSPACE_WRAPPER=$to/rustc CARGO_TARGET_DIR=$target/coverage MAKEFLAGS='' "$@"
}

build() {
    make_wrapper
    counted "${MAKE:-make}" --no-print-directory install-private "PG_CONFIG=$pg_config"
    private=$(CARGO_TARGET_DIR=$target/coverage PG_CONFIG=$pg_config .ci/server.sh)
    library=$("$private" --pkglibdir)/taskq.so
}

# --- the runs ------------------------------------------------------------------------------------------------------

programs() {
    local path
    echo unit
    for path in tests/tests/*; do
        basename "${path%.rs}"
    done
}

# Four files for each program, that many processes may end at once. A test that fails is named, and has counted.
run() {
    local program=$1 begun=$SECONDS result=passed
    export LLVM_PROFILE_FILE=$profiles/$program-%4m.profraw
    if [ "$program" = unit ]; then
        unit >"$to/$program.log" 2>&1 || result=FAILED
    else
        READY=$private WORK=$target/coverage/work T=$program .ci/test.sh outside >"$to/$program.log" 2>&1 || result=FAILED
    fi
    unset LLVM_PROFILE_FILE
    printf 'coverage: %-14s %s, %d s\n' "$program" "$result" $((SECONDS - begun)) >&2
}

unit() {
    local version
    version=$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
    PGRX_PG_CONFIG_PATH=$("$pg_config" --bindir)/pg_config counted cargo test --release --locked -p taskq --lib \
        --no-default-features --features "pg$version pg_test" -- --skip pg_test::
}

# --- the report ----------------------------------------------------------------------------------------------------

# The test program of the unit tests, where it was run, has code of its own, with counters of its own.
objects() {
    local program
    printf '%s\n' "$library"
    if [ -e "$to/unit.log" ]; then
        program=$(sed -n 's/^ *Running unittests .*(\(.*\))$/\1/p' "$to/unit.log")
        [ -z "$program" ] || printf -- '--object\n%s\n' "$program"
    fi
}

report() {
    local objects
    mapfile -t objects < <(objects)
    # What a killed process has left half written is left out.
    "$tools/llvm-profdata" merge --failure-mode=all --sparse -o "$to/all.profdata" "$profiles"/*.profraw 2>"$to/merge.log"
    local of=("${objects[@]}" "--instr-profile=$to/all.profdata" --sources "$root/src")
    "$tools/llvm-cov" report "${of[@]}" >"$to/report.txt"
    "$tools/llvm-cov" show --show-branches=count "${of[@]}" >"$to/lines.txt"
    missed <"$to/lines.txt" >"$to/missed.txt"
    table <"$to/report.txt" | tee "$to/table.txt"
}

# Lines of the source with the count 0, as file:line: text.
missed() {
    awk -F'|' -v root="$root/" '
        /^\/.*:$/ { file = $0; sub(root, "", file); sub(/:$/, "", file) }
        $2 ~ /^ *0$/ { line = $1; gsub(/ /, "", line); text = $0; sub(/^[^|]*\|[^|]*\|/, "", text); print file ":" line ":" text }'
}

# Columns of the report: regions, functions, lines and branches, each with how many, how many not reached, and percent.
table() {
    awk '
        function percent(all, missed) { return all ? sprintf("%.1f %%", 100 * (all - missed) / all) : "" }
        function row(name, m) {
            return sprintf("| %s | %d | %s | %d | %s |", name, lines[m], percent(lines[m], no_line[m]), branches[m], percent(branches[m], no_branch[m]))
        }
        function add(m) { lines[m] += $8; no_line[m] += $9; branches[m] += $11; no_branch[m] += $12 }
        $1 ~ /\.rs$/ && $1 !~ /tests?\.rs$|\/tests\// {
            module = index($1, "/") ? substr($1, 1, index($1, "/") - 1) : "the files beside them"
            if (!(module in lines)) order[++n] = module
            add(module)
            add("all")
        }
        END {
            print "| module | lines | reached | branches | reached |"
            print "|---|---|---|---|---|"
            fflush()
            for (i = 1; i <= n; i++) print row(index(order[i], " ") ? order[i] : "`" order[i] "`", order[i]) | "sort"
            close("sort")
            print row("all", "all")
        }'
}

build
for program in ${T:-$(programs)}; do
    run "$program"
done
report
