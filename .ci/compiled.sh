#!/usr/bin/env bash
# What `make` compiles, for a version of PostgreSQL: the packages are made of it.
#
#   compiled.sh VERSION    compiles what has changed, and prints the path of the server's pg_config and the folder that has
#                          release/libtaskq.so and stage/
#
# For the server that PG_CONFIG belongs to this is the folder in which make builds; for another version the server of
# other_server.sh, and a folder in target/deb. Nothing is compiled that has been.
set -euo pipefail

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
pg_config=${PG_CONFIG:-pg_config}
version=$1
if [ "$("$pg_config" --version | sed 's/^[^0-9]*\([0-9]*\).*/\1/')" = "$version" ]; then
    built=$target
else
    .ci/setup.sh matrix >&2
    pg_config=$(.ci/other_server.sh "$version")
    built=$target/deb/$version
fi
mkdir -p "$built"
built=$(cd "$built" && pwd -P)
MAKEFLAGS='' CARGO_TARGET_DIR=$built "${MAKE:-make}" --no-print-directory build "PG_CONFIG=$pg_config" >&2
printf '%s\n%s\n' "$pg_config" "$built"
