#!/usr/bin/env bash
# A private copy of the server's programs, into which tests, demo and benchmarks install the extension, so that no
# other cluster of the machine ever loads a build of theirs.
#
#   server.sh          make or refresh the copy, and print the path of its pg_config
#
#   PG_CONFIG=path     the server to copy (default: the first pg_config on the path)
#   COPY=name          another copy than that of everybody
#
# PostgreSQL finds its libraries and shared files relative to where its program lies. So the copy has real programs
# in the same folders under another root, and links to everything else. It lives in target/server/, or, where the
# user that runs the server cannot enter that, under /tmp, at a place that a file in target/server/ remembers.
set -euo pipefail

die() {
    printf 'server: %s\n' "$*" >&2
    exit 1
}

cd "$(dirname "$0")/.."
pg_config=${PG_CONFIG:-pg_config}
if [ -z "${PG_CONFIG:-}" ] && [ ! -x "$(pg_config --bindir 2>/dev/null)/postgres" ]; then
    pg_config=/usr/lib/postgresql/15/bin/pg_config
fi
bindir=$("$pg_config" --bindir 2>/dev/null) || die "$pg_config does not work: set PG_CONFIG"
pkglibdir=$("$pg_config" --pkglibdir)
sharedir=$("$pg_config" --sharedir)
[ -x "$bindir/postgres" ] && [ -x "$bindir/pg_config" ] || die "there is no server in $bindir: set PG_CONFIG"
major=$("$bindir/postgres" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')

place=${CARGO_TARGET_DIR:-target}/server${COPY:+-$COPY}
mkdir -p "$place"
place=$(cd "$place" && pwd -P)

# Already that of a private copy: nothing to do.
case "$bindir" in
    "$place"/* | /tmp/taskq-server-*) printf '%s\n' "$pg_config"; exit 0 ;;
esac

# Root hands the server over to `postgres`, who has to be able to reach its programs.
may_enter() {
    [ "$(id -u)" -eq 0 ] || return 0
    if command -v runuser >/dev/null; then
        runuser -u postgres -- test -x "$1"
    else
        setpriv --reuid=postgres --regid="$(id -g postgres)" --init-groups test -x "$1"
    fi
}

root=$place/$major
if ! may_enter "$place" 2>/dev/null; then
    root=$(cat "$place/$major.path" 2>/dev/null || true)
    if [ -z "$root" ] || [ ! -d "$root" ] || [ "$(stat -c %u "$root")" != "$(id -u)" ]; then
        root=$(mktemp -d /tmp/taskq-server-XXXXXX)
        chmod 755 "$root"
        printf '%s\n' "$root" >"$place/$major.path"
    fi
fi

copy() {
    rm -rf "$root"
    mkdir -p "$root$bindir" "$root$(dirname "$pkglibdir")" "$root$(dirname "$sharedir")"
    chmod 755 "$root"
    cp "$bindir"/* "$root$bindir/"
    cp -rs "$pkglibdir" "$root$(dirname "$pkglibdir")/"
    cp -rs "$sharedir" "$root$(dirname "$sharedir")/"
    # The copy knows nothing of what has been installed into the original.
    rm -f "$root$pkglibdir/taskq.so" "$root$sharedir/extension"/taskq.control "$root$sharedir/extension"/taskq--*.sql
    [ "$("$root$bindir/pg_config" --pkglibdir)" = "$root$pkglibdir" ] &&
        [ "$("$root$bindir/pg_config" --sharedir)" = "$root$sharedir" ] ||
        die "the server in $bindir cannot be moved: a copy of it in $root still looks into $pkglibdir"
    : >"$root/complete"
}

# A server that was upgraded meanwhile, or got another extension, is copied again.
is_current() {
    [ -e "$root/complete" ] && cmp -s "$bindir/postgres" "$root$bindir/postgres" &&
        [ ! "$pkglibdir" -nt "$root/complete" ] && [ ! "$sharedir/extension" -nt "$root/complete" ]
}

# Stages of the tests that run side by side ask for it at the same time.
exec 9>"$place/$major.lock"
flock 9
is_current || copy
printf '%s\n' "$root$bindir/pg_config"
