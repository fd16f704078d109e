#!/usr/bin/env bash
# Installs what a fresh Debian 12 machine with Rust lacks for this project.
#
#   setup.sh build    what it takes to build, install and run: server, headers, libclang, compiler, git
#   setup.sh test     the same, and Python with venv, for pgspot and the pages that show it
#   setup.sh smith    the same, and SQLsmith, if it can be had
#   setup.sh pictures    what it takes to build, Python with venv, and a browser
#   setup.sh deb      what it takes to build, and to make a package
#   setup.sh test-deb    the same, and what makes a fresh Debian
#   setup.sh matrix   what it takes to build, and to unpack servers of other versions, see other_server.sh
#
# Works as root or through sudo; silent and quick when nothing is missing. With PG_CONFIG set to the pg_config of
# a server that is there, with headers, that one is used as it is and none is installed.
set -euo pipefail

PG_MAJOR=15

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "packages are missing ($packages) and neither root nor sudo is at hand to install them"
    fi
}

# --- what is missing ---------------------------------------------------------------------------------------------

packages=''
need() { packages="$packages $*"; }

any_exists() {
    local path
    for path in "$@"; do
        [ -e "$path" ] && return 0
    done
    return 1
}

# True for the pg_config of a server that can be run and built against; that of libpq alone is not.
is_server() {
    local bin headers
    bin=$("$1" --bindir 2>/dev/null) && headers=$("$1" --includedir-server 2>/dev/null) || return 1
    [ -x "$bin/postgres" ] && [ -e "$headers/postgres.h" ]
}

missing_server() {
    local server="/usr/lib/postgresql/$PG_MAJOR" headers="/usr/include/postgresql/$PG_MAJOR/server/postgres.h"
    if [ -n "${PG_CONFIG:-}" ] && is_server "$PG_CONFIG"; then
        return 0
    fi
    case "${PG_CONFIG:-}" in
        # A certain server is wanted: another in its place would not do. A bare name is only a default.
        */*) die "PG_CONFIG=$PG_CONFIG is not that of an installed server with its headers" ;;
    esac
    any_exists "$server/bin/postgres" || need "postgresql-$PG_MAJOR"
    { any_exists "$headers" && any_exists "$server/bin/pg_config"; } || need "postgresql-server-dev-$PG_MAJOR"
}

missing_tools() {
    have gcc || have cc || need gcc libc6-dev
    have pkg-config || need pkg-config
    have make || need make
    have git || need git
    # bindgen loads libclang and asks the clang program where the system's headers are.
    if [ -z "${LIBCLANG_PATH:-}" ]; then
        any_exists /usr/lib/llvm-*/lib/libclang.so* /usr/lib/llvm-*/lib/libclang-*.so* \
            /usr/lib/*/libclang.so* /usr/lib/*/libclang-*.so* /usr/lib/libclang.so* || need libclang-dev
    fi
    have clang || any_exists /usr/bin/clang-* /usr/lib/llvm-*/bin/clang || need clang
}

# --- installing it -----------------------------------------------------------------------------------------------

# Debian's server package makes a cluster named "main" and starts it. It is not wanted: a setting of
# our own prevents it for as long as the installation takes.
no_main_cluster=''
prevent_main_cluster() {
    local dir=/etc/postgresql-common/createcluster.d
    as_root mkdir -p "$dir"
    no_main_cluster="$dir/zz-taskq-setup.conf"
    trap allow_main_cluster EXIT
    printf 'create_main_cluster = false\n' | as_root tee "$no_main_cluster" >/dev/null
}

allow_main_cluster() {
    [ -n "$no_main_cluster" ] || return 0
    as_root rm -f "$no_main_cluster"
    no_main_cluster=''
}

install_packages() {
    [ -n "$packages" ] || return 0
    have apt-get || die "please install the equivalents of:$packages"
    say "installing$packages"
    case " $packages " in
        *" postgresql-$PG_MAJOR "*) prevent_main_cluster ;;
    esac
    # The lists of a fresh machine are empty or old; of one that is in use, mostly good enough.
    # shellcheck disable=SC2086  # a list of words
    if ! apt_install $packages 2>/dev/null; then
        as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq || die "apt-get update failed"
        # shellcheck disable=SC2086
        apt_install $packages || die "could not install$packages"
    fi
    allow_main_cluster
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 "$@" >/dev/null
}

# --- Rust -----------------------------------------------------------------------------------------------

find_cargo() {
    have cargo || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    have cargo || die "cargo is missing: install Rust first (https://rustup.rs)"
}

case "${1:-}" in
    build | test | smith | pictures | deb | test-deb | matrix) ;;
    *)
        printf 'usage: %s build|test|smith|pictures|deb|test-deb|matrix\n' "$0" >&2
        exit 2
        ;;
esac

missing_server
missing_tools
case "$1" in
    deb | test-deb)
        have dpkg-shlibdeps || need dpkg-dev
        have strip || need binutils
        ;;
esac
case "$1" in
    test | smith | pictures) python3 -c 'import ensurepip, venv' 2>/dev/null || need python3 python3-venv ;;
esac
if [ "$1" = pictures ]; then
    have "${CHROMIUM:-chromium}" || need chromium fonts-dejavu-core
fi
if [ "$1" = test-deb ]; then
    have debootstrap || need debootstrap
fi
if [ "$1" = matrix ]; then
    have patchelf || need patchelf
    any_exists /usr/share/keyrings/debian-archive-keyring.gpg || need debian-archive-keyring
fi
install_packages
find_cargo
if [ "$1" = smith ]; then
    # A test does without it, and says so.
    have sqlsmith || { have apt-get && apt_install sqlsmith 2>/dev/null; } || say "there is no sqlsmith: its test will not be run"
fi
