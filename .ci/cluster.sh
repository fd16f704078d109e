#!/usr/bin/env bash
# A private PostgreSQL cluster in a folder: for the demo, the tests and the benchmarks.
#
#   cluster.sh start DIR [-c name=value ...]   make it if need be, and start it with these settings
#   cluster.sh stop DIR                        stop it (the data stay)
#   cluster.sh restart DIR                     stop and start with the settings of the last start
#   cluster.sh stop-now DIR                    stop it as `pg_ctl -m immediate` does: it recovers when it is started again
#   cluster.sh kill DIR                        kill every process of it at once, as a power cut would
#   cluster.sh remove DIR                      stop it, and remove its data; its log stays
#   cluster.sh env DIR                         print PGHOST=... PGPORT=... PGUSER=postgres
#   cluster.sh upgrade DIR FROM BIN            make it of the stopped cluster in FROM, whose programs are in BIN, by pg_upgrade
#
# It listens on a Unix socket only, in a folder that no other user can enter, so there is no port to collide on and
# no other cluster to touch. The server refuses to run as root: then it runs as `postgres` (or as the user that
# owns the data already). Each command may be repeated, and `start` copes with whatever an earlier run that was killed
# has left behind. The data are disposable: those of another major version are thrown away.
set -euo pipefail

say() { printf 'cluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

usage() {
    sed -n '4,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

[ $# -ge 2 ] || usage
command=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd -P)
shift 2

# --- who runs it, and with which server --------------------------------------------------------------------------

# The same choice as the Makefile's, so that this is the server that `make install` has installed into.
pg_config=${PG_CONFIG:-pg_config}
if [ -z "${PG_CONFIG:-}" ] && [ ! -x "$(pg_config --bindir 2>/dev/null)/postgres" ]; then
    pg_config=/usr/lib/postgresql/15/bin/pg_config
fi
bin=$("$pg_config" --bindir 2>/dev/null) || die "$pg_config does not work: set PG_CONFIG"
[ -x "$bin/postgres" ] || die "there is no server in $bin: set PG_CONFIG to that of an installed one"
major=$("$bin/postgres" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')

# The owner of existing data must go on with them; else root hands over to `postgres`.
server_user=$(id -un)
choose_user() {
    [ "$(id -u)" -eq 0 ] || return 0
    server_user=postgres
    if [ -d "$base/data" ] && [ "$(stat -c %u "$base/data")" -ne 0 ]; then
        server_user=$(stat -c %U "$base/data")
    fi
    id "$server_user" >/dev/null 2>&1 || die "root may not run a server, and there is no user $server_user to do it"
}

# Runs a command as the server's user, from a folder that it can enter, with a bare environment: settings such as
# PGDATA or RUST_BACKTRACE of the calling shell must not change how the server behaves.
as_server() {
    local clean=(env -i "PATH=$PATH" LANG=C.UTF-8 HOME=/)
    [ -z "${LD_LIBRARY_PATH:-}" ] || clean+=("LD_LIBRARY_PATH=$LD_LIBRARY_PATH")
    # Where a library with counters writes them, see coverage.sh.
    [ -z "${LLVM_PROFILE_FILE:-}" ] || clean+=("LLVM_PROFILE_FILE=$LLVM_PROFILE_FILE")
    if [ "$server_user" = "$(id -un)" ]; then
        (cd / && "${clean[@]}" "$@")
    elif command -v runuser >/dev/null; then
        (cd / && runuser -u "$server_user" -- "${clean[@]}" "$@")
    elif command -v setpriv >/dev/null; then
        (cd / && setpriv --reuid="$server_user" --regid="$(id -g "$server_user")" --init-groups "${clean[@]}" "$@")
    else
        (cd / && sudo -u "$server_user" -- "${clean[@]}" "$@")
    fi
}

# --- where it lives ----------------------------------------------------------------------------------------------

# DIR itself holds data, log and socket where it can. Two things may forbid that, and each has a way out under
# /tmp that a file in DIR remembers: the server's user cannot enter DIR (a parent such as /root is closed to it),
# and a socket's path is limited to 107 bytes. With MEMORY data that are not there yet go
# the first way, to that folder. Sets base and sock; empty where nothing is there yet.
locate() {
    base=$dir
    [ ! -s "$dir/base.path" ] || base=$(cat "$dir/base.path")
    sock=''
    [ ! -s "$dir/socket.path" ] || sock=$(cat "$dir/socket.path")
    choose_user
}

make_base() {
    if [ "$base" != "$dir" ] && [ -d "$base" ]; then
        return
    fi
    base=$dir
    rm -f "$dir/base.path"
    choose_user
    if { [ -n "${MEMORY:-}" ] && [ ! -d "$dir/data" ]; } || ! as_server test -x "$dir" 2>/dev/null; then
        base=$(mktemp -d "${MEMORY:-/tmp}/taskq-cluster-XXXXXX")
        chown "$server_user" "$base"
        printf '%s\n' "$base" >"$dir/base.path"
        rm -f "$dir/log"
        ln -s "$base/log" "$dir/log"
    fi
}

make_socket_dir() {
    if [ -n "$sock" ] && [ -d "$sock" ] && [ "$(stat -c %U "$sock")" = "$server_user" ]; then
        return
    fi
    sock=$base/socket
    # 107 bytes less the socket's own name; nor should a caller have to quote PGHOST.
    if [ ${#sock} -gt 90 ] || [[ $sock == *[!A-Za-z0-9_./-]* ]]; then
        sock=$(mktemp -d /tmp/taskq-socket-XXXXXX)
    fi
    mkdir -p "$sock"
    chown "$server_user" "$sock"
    chmod 700 "$sock"
    printf '%s\n' "$sock" >"$dir/socket.path"
}

# --- what runs ---------------------------------------------------------------------------------------------------

# Every process of a server stands in its data folder, which tells ours from any other that has inherited a
# process id out of an old pid file. Asked as the server's user: in a container not even root may look at the
# processes of other users.
processes() {
    local cwd pid name
    as_server find /proc -mindepth 2 -maxdepth 2 -name cwd -printf '%h\t%l\n' 2>/dev/null |
        while IFS=$'\t' read -r pid cwd; do
            [ "$cwd" = "$base/data" ] || continue
            { read -r name <"$pid/comm"; } 2>/dev/null || continue
            [ "$name" != postgres ] || printf '%s\n' "${pid#/proc/}"
        done || true
}

postmaster() {
    local pid
    pid=$(head -n 1 "$base/data/postmaster.pid" 2>/dev/null) || return 1
    [ -n "$pid" ] && [ "$(as_server readlink "/proc/$pid/cwd" 2>/dev/null)" = "$base/data" ] &&
        printf '%s\n' "$pid"
}

signal() {
    # A process that has just gone is what was wanted.
    as_server kill "-$1" "$2" 2>/dev/null || true
}

kill_all() {
    local pid pids
    # The postmaster first: it would otherwise restart what it finds dead.
    pid=$(postmaster || true)
    [ -z "$pid" ] || signal KILL "$pid"
    for _ in $(seq 100); do
        pids=$(processes)
        [ -n "$pids" ] || return 0
        for pid in $pids; do
            signal KILL "$pid"
        done
        sleep 0.05
    done
    die "could not end the processes of $base/data:" $pids
}

pg_ctl() {
    as_server "$bin/pg_ctl" -D "$base/data" -w -t 60 "$@"
}

# --- the commands ------------------------------------------------------------------------------------------------

init() {
    if [ -s "$base/data/PG_VERSION" ]; then
        [ "$(cat "$base/data/PG_VERSION")" = "$major" ] && return
        kill_all
    fi
    # First beside its place, then moved: half a cluster is never taken for a whole one.
    rm -rf "$base/data" "$base/data.new"
    mkdir "$base/data.new"
    chown "$server_user" "$base/data.new"
    chmod 700 "$base/data.new"
    as_server "$bin/initdb" -D "$base/data.new" --username=postgres --auth=trust --locale=C.UTF-8 \
        --encoding=UTF8 --no-sync "$@" >"$dir/initdb.log" 2>&1 ||
        { cat "$dir/initdb.log" >&2; die "initdb failed"; }
    printf "include = 'private.conf'\n" >>"$base/data.new/postgresql.conf"
    mv "$base/data.new" "$base/data"
}

quoted() {
    local value=${1//\'/\'\'}
    printf "'%s'" "$value"
}

# Prints the settings of this start, the caller's last so that they win.
settings() {
    printf "listen_addresses = ''\n"
    printf 'port = 5432\n' # it only names the socket
    printf 'unix_socket_directories = %s\n' "$(quoted "$sock")"
    printf "log_line_prefix = '%%m [%%p] %%q%%a '\n"
    printf "max_connections = 100\n"
    while [ $# -gt 0 ]; do
        { [ "$1" = -c ] && [ $# -ge 2 ] && [[ $2 == *=* ]]; } || die "expected -c name=value, got: $*"
        printf '%s = %s\n' "${2%%=*}" "$(quoted "${2#*=}")"
        shift 2
    done
}

run() {
    local tries
    [ -n "$(postmaster || true)" ] || kill_all # children of a postmaster that was killed
    rm -f "$base/data/postmaster.pid"
    : >>"$base/log"
    chown "$server_user" "$base/log"
    for tries in 1 2 3; do
        if pg_ctl -l "$base/log" start >/dev/null 2>&1; then
            return
        fi
        sleep "$tries"
    done
    tail -n 20 "$base/log" >&2
    die "the server does not start; its log is $base/log"
}

start() {
    local conf new
    make_base
    make_socket_dir
    init
    conf=$base/data/private.conf
    new=$(settings "$@")
    if [ -n "$(postmaster || true)" ]; then
        if [ "$new" = "$(cat "$conf" 2>/dev/null)" ] && as_server "$bin/pg_isready" -q -h "$sock" -p 5432; then
            return
        fi
        stop
        make_socket_dir
        new=$(settings "$@")
    fi
    printf '%s\n' "$new" >"$conf"
    chown "$server_user" "$conf"
    run
}

stop() {
    if [ -n "$(postmaster || true)" ]; then
        pg_ctl -m fast stop >/dev/null 2>&1 || kill_all
    fi
    case "$sock" in
        # Nothing of a stopped cluster stays in /tmp but data that could not live in DIR.
        /tmp/taskq-socket-*)
            rm -rf "$sock"
            rm -f "$dir/socket.path"
            sock=''
            ;;
    esac
}

remove() {
    stop
    rm -rf "$base/data"
    if [ "$base" != "$dir" ]; then
        [ ! -e "$base/log" ] || { rm -f "$dir/log" && mv "$base/log" "$dir/log"; }
        rm -rf "$base"
        rm -f "$dir/base.path" "$dir/socket.path"
    fi
}

stop_now() {
    [ -z "$(postmaster || true)" ] || pg_ctl -m immediate stop >/dev/null 2>&1 || kill_all
}

restart() {
    [ -s "$base/data/private.conf" ] || die "there is no cluster in $dir: start it first"
    if [ -n "$(postmaster || true)" ]; then
        pg_ctl -m fast stop >/dev/null 2>&1 || kill_all
    fi
    make_socket_dir
    # The socket's folder may be a new one; the other settings stay.
    sed -i "s|^unix_socket_directories = .*|unix_socket_directories = $(quoted "$sock")|" "$base/data/private.conf"
    run
}

# Beside the data is where pg_upgrade may write.
upgrade() {
    local old checksums=()
    [ $# -eq 2 ] || usage
    old=$(cd "$1" && pwd -P)
    [ ! -s "$old/base.path" ] || old=$(cat "$old/base.path")
    stop
    make_base
    make_socket_dir
    rm -rf "$base/data" "$base/upgrade"
    # Version 18 has checksums unless told otherwise; pg_upgrade wants both clusters alike.
    if [ "$major" -ge 18 ] && as_server "$2/pg_controldata" "$old/data" | grep -q 'checksum version: *0$'; then
        checksums=(--no-data-checksums)
    fi
    init "${checksums[@]}"
    printf '%s\n' "$(settings)" >"$base/data/private.conf"
    mkdir "$base/upgrade"
    chown "$server_user" "$base/upgrade" "$base/data/private.conf"
    # shellcheck disable=SC2016  # is expanded there
    as_server sh -c 'cd "$1" && shift && exec "$@"' sh "$base/upgrade" "$bin/pg_upgrade" --username=postgres \
        --old-bindir="$2" --new-bindir="$bin" --old-datadir="$old/data" --new-datadir="$base/data" --socketdir="$sock" >&2 ||
        { find "$base/data/pg_upgrade_output.d" "$base/upgrade" -name '*.log' -o -name '*.txt' 2>/dev/null | xargs -r tail -n 20 >&2; die "pg_upgrade failed"; }
}

locate
case "$command" in
    start) start "$@" ;;
    stop) stop ;;
    stop-now) stop_now ;;
    restart) restart ;;
    kill) kill_all ;;
    remove) remove ;;
    upgrade) upgrade "$@" ;;
    env)
        [ -n "$sock" ] || die "there is no cluster in $dir: start it first"
        printf 'PGHOST=%s PGPORT=5432 PGUSER=postgres\n' "$sock"
        ;;
    *) usage ;;
esac
