#!/usr/bin/env bash
# The tests that need a server, on other versions of PostgreSQL than the machine's. `make test-matrix` calls this.
#
#   matrix.sh [VERSION...]    (default: 17 18)
#
#   T='own flow'    the test programs to run, or one with a part of its tests' names: own::order; all: those of
#                   `make test-all` (default: those of `make test`)
#
# For each version: a server of its own (other_server.sh), the library built against its headers, the extension installed
# into that server, a look whether it turns down the libraries that were built for others, and then what `make outside-test`,
# `make pg-test` and `make packages-test` run; with T= only the first. (`make lint` and `make unit-test` know no server.) All of it
# lies in target/matrix/.
set -euo pipefail

die() {
    printf 'matrix: %s\n' "$*" >&2
    exit 1
}

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
[ $# -gt 0 ] || set -- 17 18

# Less optimized than a release: what is tested is whether it works. In a folder apart from other builds, whose flags differ.
compile() {
    CARGO_TARGET_DIR=$target/matrix/build CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_DEBUG=0 "$@"
}

# What depends on the version lies in there once for each, but for the library itself: so that goes first.
build() {
    cargo clean --release -p taskq --target-dir "$target/matrix/build" --quiet
    compile "${MAKE:-make}" --no-print-directory install "PG_CONFIG=$pg_config" "INTO=$pg_config" DESTDIR=
}

# A library is for the version that it was built for. Another server does not load it: some function that it was linked to
# is not there, or else what the headers have put into it is not the server's. Both are found before any code of it runs.
check_refusals() {
    local of library said
    # Those of this script, and that of the machine's server if the tests have run with it.
    for library in "$target"/{matrix/*/root,server/*}/usr/lib/postgresql/*/lib/taskq.so; do
        of=${library%/lib/taskq.so}
        of=${of##*/}
        [ -e "$library" ] && [ "$of" != "$version" ] || continue
        # From where the server's user can read it, under the name by which it is looked for.
        install -D -m 755 "$library" "$("$pg_config" --pkglibdir)/other/taskq.so"
        said=$(psql -X -q -d postgres -c "LOAD '\$libdir/other/taskq'" 2>&1) && die "$version loads $library"
        grep -qE 'undefined symbol|incompatible library' <<<"$said" || die "$library is not loaded, but: $said"
        printf 'matrix: PostgreSQL %s refuses the library for %s: %s\n' "$version" "$of" \
            "$(grep -oEm 1 'undefined symbol.*|incompatible library' <<<"$said")"
    done
    rm -rf "$("$pg_config" --pkglibdir)/other"
}

.ci/setup.sh matrix
# From the machine's server pg_upgrade goes to each of the others, if the tests have put the extension into it.
old=$(.ci/server.sh 2>/dev/null || true)
if [ -n "$old" ] && [ -e "$("$old" --pkglibdir)/taskq.so" ]; then
    export TASKQ_OLD_SERVER=$old
else
    printf 'matrix: without pg_upgrade from another version: make install-private\n'
fi
results=''
failed=''
for version; do
    pg_config=$(.ci/other_server.sh "$version")
    work=$target/matrix/$version/test
    mkdir -p "$work"
    printf '\n==> PostgreSQL %s\n' "$("$pg_config" --version)"
    build
    (
        trap 'PG_CONFIG=$pg_config .ci/cluster.sh stop "$work/cluster"' EXIT
        PG_CONFIG=$pg_config .ci/cluster.sh start "$work/cluster"
        settings=$(PG_CONFIG=$pg_config .ci/cluster.sh env "$work/cluster")
        # shellcheck disable=SC2086,SC2163  # words of the form NAME=value
        export $settings
        PATH=$("$pg_config" --bindir):$PATH
        check_refusals
    )
    export READY=$pg_config WORK=$work
    rm -f "$work"/{outside,pg,packages}.log
    .ci/test.sh outside || failed="$failed $version"
    if [ "${T:-all}" = all ]; then
        T='' compile .ci/test.sh pg || failed="$failed $version"
        .ci/test.sh packages | tee "$work/packages.log" || failed="$failed $version"
    fi
    results="$results$("$pg_config" --version): $({ cat "$work"/{outside,pg,packages}.log 2>/dev/null || true; } |
        sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' |
        awk '{ p += $1; f += $2; i += $3 } END { printf "%d passed, %d failed, %d ignored", p, f, i }')"$'\n'
    unset READY WORK
done

printf '\n%s' "$results"
[ -z "$failed" ] || die "failed on$failed"
