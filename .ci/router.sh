#!/usr/bin/env bash
# The extension taskq_router (examples/sharding), and PL/Proxy, which it needs, for a private copy of the server (see server.sh).
#
#   router.sh             put both beside the server of PG_CONFIG
#
#   PG_CONFIG=path        the pg_config of a private copy
#
# PL/Proxy is Debian's package, fetched by apt if it is not there, unpacked and never installed: nothing of the machine
# changes. It stays in target/plproxy. Where it cannot be had, this ends with 3: no router can be tried there.
set -euo pipefail

missing() {
    printf 'router: %s\n' "$*" >&2
    exit 3
}

cd "$(dirname "$0")/.."
pg_config=${PG_CONFIG:?the pg_config of a private copy of the server}
pkglibdir=$("$pg_config" --pkglibdir)
extension=$("$pg_config" --sharedir)/extension
major=$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
case "$extension" in
    "$(pwd -P)"/* | /tmp/taskq-server-*) ;;
    "$(cd "${CARGO_TARGET_DIR:-target}" && pwd -P)"/*) ;;
    *) printf 'router: %s is not that of a private copy\n' "$pg_config" >&2; exit 1 ;;
esac
install -m 644 examples/sharding/taskq_router.control examples/sharding/taskq_router--*.sql "$extension/"
if [ -e "$pkglibdir/plproxy.so" ] && [ -e "$extension/plproxy.control" ]; then
    exit 0
fi

package=postgresql-$major-plproxy
place=${CARGO_TARGET_DIR:-target}/plproxy/$major
fetch() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || missing "without apt, install $package by hand"
    rm -rf "$place.new"
    mkdir -p "$place.new"
    (cd "$place.new" && apt-get -qq download "$package" 2>/dev/null) || update_and_fetch
    dpkg-deb --extract "$place.new/$package"_*.deb "$place.new"
    rm -rf "$place"
    mv "$place.new" "$place"
}

# The lists of a fresh machine are empty or old.
update_and_fetch() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" apt-get -qq update >/dev/null 2>&1 || missing "no lists of packages: is there a network?"
    (cd "$place.new" && apt-get -qq download "$package" 2>/dev/null) || missing "$package is not to be had"
}

[ -e "$place/usr/lib/postgresql/$major/lib/plproxy.so" ] || fetch
cp -r "$place/usr/share/postgresql/$major/extension"/plproxy* "$extension/"
# Last, and at once: it says that all is there.
cp "$place/usr/lib/postgresql/$major/lib/plproxy.so" "$pkglibdir/plproxy.so.new"
mv "$pkglibdir/plproxy.so.new" "$pkglibdir/plproxy.so"
