#!/usr/bin/env bash
# install.sh FOLDER: PgQ from Debian's package for this version of the server, unpacked and not installed.
set -euo pipefail
major=$("${PG_CONFIG:-pg_config}" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
package=postgresql-$major-pgq3
for program in apt-get dpkg; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 1; }
done
cd "$1"
[ -e "unpacked/usr/lib/postgresql/$major/lib/pgq_lowlevel.so" ] && exit
apt-get download -qq "$package" >/dev/null 2>&1 || { echo "apt-get has no $package" >&2; exit 1; }
dpkg -x "$package"_*.deb unpacked
dpkg -f "$package"_*.deb Version >version
rm "$package"_*.deb
