#!/usr/bin/env bash
# A server of another major version than the machine's, for `make test-matrix`.
#
#   other_server.sh VERSION     get it if need be, into target/matrix/VERSION/root, and print the path of its pg_config
#
# 17 and 18 are Debian's packages, of trixie and forky, each with all that it depends on: fetched by apt with lists of
# their own, unpacked and never installed, so that this takes no root and nothing of the machine changes. Their programs
# are told by patchelf to run with the C library and the libraries that they came with: so they run as they do on that
# release of Debian, and the scripts in here start and stop them like any other server. 16 is in no release of Debian;
# it is the server that the Python package pgserver brings, with its headers.
set -euo pipefail

die() {
    printf 'other_server: %s\n' "$*" >&2
    exit 1
}

cd "$(dirname "$0")/.."
version=${1:-}
case "$version" in
    16) release='' ;;
    17) release=trixie ;;
    18) release=forky ;;
    *) die "for 16, 17 or 18: a server of another version is given by PG_CONFIG, see CONTRIBUTING.md" ;;
esac
place=${CARGO_TARGET_DIR:-target}/matrix/$version
mkdir -p "$place"
place=$(cd "$place" && pwd -P)
root=$place/root
pg_config=$root/usr/lib/postgresql/$version/bin/pg_config

have() { command -v "$1" >/dev/null 2>&1; }

# --- Debian's packages -------------------------------------------------------------------------------------------

# apt with a state of its own, in which no package is installed. An archive that lags behind, so that its lists count as
# expired, is as good here: they are signed all the same.
apt() {
    apt-get -qq -o "Dir::State=$place/apt" -o "Dir::State::status=$place/apt/status" -o "Dir::Cache=$place/apt/cache" \
        -o "Dir::Etc::sourcelist=$place/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=true -o Acquire::Languages=none \
        -o Acquire::Check-Valid-Until=false -o APT::Install-Recommends=false "$@"
}

unpack_debian() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror package
    for tool in apt-get dpkg-deb patchelf; do
        have "$tool" || die "$tool is missing"
    done
    [ -e "$keys" ] || die "$keys is missing (package debian-archive-keyring)"
    mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial" "$root.new"
    : >"$place/apt/status"
    mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
    # A release gets its new minor versions as security updates first; one that is still being made, in its main part.
    # pg_upgrade wants the newest: 15.20 notes `pg_attver` at each column, which 17.11 does not know, and 17.12 does.
    {
        printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$release"
        [ "$release" = forky ] ||
            printf 'deb [signed-by=%s] %s %s-security main\n' "$keys" "${DEBIAN_SECURITY_MIRROR:-$mirror-security}" "$release"
    } >"$place/apt/sources.list"
    apt update || die "no lists of packages of $release"
    apt install --yes --download-only "postgresql-$version" || die "postgresql-$version is not to be had"
    # The headers alone: what it takes to compile against them is the machine's.
    (cd "$place/apt/cache/archives" && apt download "postgresql-server-dev-$version") || die "no headers"
    for package in "$place"/apt/cache/archives/*.deb; do
        dpkg-deb --extract "$package" "$root.new"
    done
    rm -rf "$place/apt"
}

# A program names its loader, and the folder of its libraries, by absolute paths.
settle() {
    local program loader libraries
    libraries=$(dirname "$(find "$root/usr/lib" -name libpq.so.5 | head -n 1)")
    for program in "$root/usr/lib/postgresql/$version/bin"/*; do
        loader=$(patchelf --print-interpreter "$program" 2>/dev/null) || continue # a script
        loader=${loader##*/usr/}
        loader=$root/usr/${loader#/}
        patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$program"
    done
}

# --- the Python package ------------------------------------------------------------------------------------------

unpack_wheel() {
    local wheel=$place/wheel
    mkdir -p "$wheel" "$root.new/usr/lib/postgresql"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$wheel" pgserver==0.1.4
    python3 -m zipfile -e "$wheel"/*.whl "$wheel/files"
    # Its libraries are looked for beside the package's folder.
    mv "$wheel/files/pgserver.libs" "$root.new/usr/lib/"
    mkdir -p "$root.new/usr/lib/postgresql"
    mv "$wheel/files/pgserver/pginstall" "$root.new/usr/lib/postgresql/$version"
    chmod 755 "$root.new/usr/lib/postgresql/$version/bin"/*
    rm -rf "$wheel"
}

# --- what there is -----------------------------------------------------------------------------------------------

if [ ! -d "$root" ]; then
    rm -rf "$root.new"
    if [ -n "$release" ]; then
        unpack_debian
    else
        unpack_wheel
    fi
    mv "$root.new" "$root"
fi
# For the place where it lies now.
if [ -n "$release" ] && [ "$(cat "$root/settled" 2>/dev/null)" != "$root" ]; then
    settle
    printf '%s\n' "$root" >"$root/settled"
fi
case "$("$pg_config" --version)|$("$pg_config" --sharedir)" in
    "PostgreSQL $version."*"|$root/"*) ;;
    *) die "$pg_config is not what it should be" ;;
esac
printf '%s\n' "$pg_config"
