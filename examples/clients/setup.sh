#!/usr/bin/env bash
# Installs what the example clients and their tests need into target/clients: a Python environment, the packages of
# Node, the workers that are compiled (Rust, Go, Java). Quick when nothing has changed.
#
#   setup.sh [python|node|go|java|ruby|rust|pgbouncer]...    these only (default: all)
#   setup.sh venv npm chromium                               what builds the client packages, and the browser of their tests, and nothing
#                                                            into target/clients
#
# What is missing of python3 with venv, node with npm, go with pgx, a JDK with the JDBC driver and Gson, ruby with pg, psql
# and PgBouncer is installed from the distribution's packages, as root or through sudo. For `rust` cargo must be there.
set -euo pipefail

say() { printf 'clients: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

here=$(cd "$(dirname "$0")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)
to=${CARGO_TARGET_DIR:-$root/target}/clients

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "$* wants root, and sudo is not at hand"
    fi
}

apt_install() {
    have apt-get || die "please install the equivalents of: $*"
    say "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The service that Debian's package starts is not wanted: policy-rc.d keeps it from that while it is installed.
install_pgbouncer() {
    have pgbouncer || [ -x /usr/sbin/pgbouncer ] && return
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap "as_root rm -f $policy" EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod +x "$policy"
    fi
    apt_install pgbouncer
}

install_venv() {
    have python3 || apt_install python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
}

install_npm() {
    have npm || apt_install nodejs npm
}

install_chromium() {
    have "${CHROMIUM:-chromium}" || apt_install chromium fonts-dejavu-core
}

install_python() {
    install_venv
    cmp -s "$here/python/requirements.txt" "$to/python/requirements.txt" && return
    say "installing the packages of the Python clients"
    mkdir -p "$to"
    python3 -m venv --clear "$to/python"
    "$to/python/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
    cp "$here/python/requirements.txt" "$to/python/"
}

install_node() {
    install_npm
    mkdir -p "$to/node"
    cmp -s "$here/node/package-lock.json" "$to/node/package-lock.json" && [ -d "$to/node/node_modules/pg" ] && return
    say "installing the packages of the Node client"
    rm -f "$to/node/package-lock.json"
    cp "$here/node/package.json" "$to/node/"
    # The lock file comes last: it says that the rest is there.
    cp "$here/node/package-lock.json" "$to/node/package-lock.new"
    (cd "$to/node" && mv package-lock.new package-lock.json && npm ci --silent --no-audit --no-fund) ||
        { rm -f "$to/node/package-lock.json"; die "npm ci failed"; }
}

# What is compiled is compiled in a copy of its folder, by the commands of docs/clients.md.
copy() {
    rm -rf "${to:?}/$1"
    mkdir -p "$to"
    cp -R "$here/$1" "$to/$1"
}

# Debian's packages of Go bring their sources, which are found below GOPATH; there are no modules then.
install_go() {
    local sources=/usr/share/gocode/src/github.com/jackc/pgx/v4
    have go && [ -d "$sources" ] || apt_install golang-go golang-github-jackc-pgx-v4-dev
    copy go
    export GO111MODULE=off GOFLAGS='' GOPATH=$to/gopath:/usr/share/gocode
    (cd "$to/go" && go build -o taskq-worker ./worker && go build -o taskq-enqueue ./enqueue)
}

install_java() {
    local jars=/usr/share/java/postgresql.jar:/usr/share/java/gson.jar
    have javac || apt_install openjdk-17-jdk-headless
    [ -e "${jars%%:*}" ] && [ -e "${jars#*:}" ] || apt_install libpostgresql-jdbc-java libgoogle-gson-java
    [ -d "$to/java/classes" ] && diff -q -x classes -r "$here/java" "$to/java" >/dev/null && return
    copy java
    (cd "$to/java" && javac -d classes -cp /usr/share/java/gson.jar *.java)
}

install_ruby() {
    have ruby && ruby -e 'require "pg"' 2>/dev/null || apt_install ruby ruby-pg
}

install_rust() {
    have cargo || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    have cargo || die "cargo is missing: install Rust first (https://rustup.rs)"
    CARGO_TARGET_DIR=$to/build cargo build --release --locked --quiet --manifest-path "$here/rust/Cargo.toml"
}

[ $# -gt 0 ] || set -- pgbouncer python node go java ruby rust
for what; do
    [[ $what == @(venv|npm|chromium) ]] || have psql || apt_install postgresql-client
    install_"$what"
done
