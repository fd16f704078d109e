#!/usr/bin/env bash
# install.sh FOLDER: pg-boss from npm. Its client is run by schema.sh once, to migrate and to say its statements.
set -euo pipefail
version=12.38.0
for program in node npm; do
    command -v $program >/dev/null || { echo "$program is missing" >&2; exit 1; }
done
cd "$1"
[ "$(cat version 2>/dev/null)" = $version ] && exit
npm install --prefix . --silent --no-audit --no-fund --ignore-scripts pg-boss@$version
echo $version >version
