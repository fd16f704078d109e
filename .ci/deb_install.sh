#!/usr/bin/env bash
# What `make test-deb` runs inside of a fresh Debian: installs the package, uses the queue, removes the package.
#
#   deb_install.sh MAJOR PACKAGE VERSION
set -euo pipefail

major=$1
file=$2
version=$3
export DEBIAN_FRONTEND=noninteractive

die() {
    printf 'deb_install: %s\n' "$*" >&2
    exit 1
}

psql() { su postgres -c "psql -X -q -At -v ON_ERROR_STOP=1 -d ${1:-postgres}"; }

for tool in cargo rustc cc clang; do
    ! command -v "$tool" >/dev/null || die "this is no machine without Rust: there is $tool"
done

# Debian's own packages come from the network, this one from the file. An archive that lags behind is as good: it is signed all the same.
apt-get update -qq -o Acquire::Check-Valid-Until=false
apt-get install -y -qq --no-install-recommends "$file" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; die "it cannot be installed"; }
[ -e "/usr/lib/postgresql/$major/lib/taskq.so" ] || die "no library"
ldd "/usr/lib/postgresql/$major/lib/taskq.so" | grep 'not found' && die "the library misses another"
dpkg --verify "postgresql-$major-taskq"

pg_lsclusters -h | grep -q "^$major main" || pg_createcluster "$major" main >/dev/null
printf "shared_preload_libraries = 'taskq'\ntaskq.databases = 'jobs'\nlisten_addresses = ''\n" >>"/etc/postgresql/$major/main/postgresql.conf"
pg_ctlcluster "$major" main start

psql <<'SQL'
CREATE DATABASE jobs;
CREATE ROLE web LOGIN;
CREATE ROLE hands LOGIN;
SQL
psql jobs </tmp/package_use.sql

[ "$(psql jobs <<<"SELECT extversion FROM pg_extension WHERE extname = 'taskq'")" = "$version" ] || die "another version"
for _ in $(seq 100); do
    workers=$(psql <<<"SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'taskq%' AND datname = 'jobs'")
    [ "$workers" = 0 ] || break
    sleep 0.1
done
[ "$workers" = 1 ] || die "$workers background workers"

psql jobs <<<'DROP EXTENSION taskq'
pg_ctlcluster "$major" main stop -m fast
apt-get purge -y -qq "postgresql-$major-taskq" >/tmp/apt.log 2>&1 || { cat /tmp/apt.log >&2; die "it cannot be removed"; }
left=$(find / -xdev -path /proc -prune -o -name '*taskq*' ! -path '/tmp/*' -print)
[ -z "$left" ] || die "it leaves behind: $left"
printf 'deb: installed, used and removed on %s, PostgreSQL %s\n' "$(. /etc/os-release && printf '%s' "$PRETTY_NAME")" \
    "$(dpkg-query -W -f '${Version}' "postgresql-$major")"
