#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: the package's own script, and a queue with a consumer for each of four clients. The script
# loads its libraries from beside the server's, where nothing of ours shall lie: from the cluster's folder instead.
set -euo pipefail
lib=$(psql -X -A -t -d "$2" -c 'SHOW data_directory')/pgq
mkdir -p "$lib"
cp "$1"/unpacked/usr/lib/postgresql/*/lib/pgq_*.so "$lib"
chmod -R a+rX "$lib"
cat "$1"/unpacked/usr/share/postgresql/*/contrib/pgq.sql >"$1/schema.sql"
sed -i "s|\\\$libdir|$lib|" "$1/schema.sql"
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -f "$1/schema.sql" -f "$(dirname "$0")/queues.sql" >"$1/schema.log"
