#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: the extension, as `make install-private` has installed it.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -c 'CREATE EXTENSION taskq'
psql -X -q -A -t -d "$2" -c "SELECT extversion FROM pg_extension WHERE extname = 'taskq'" >"$1/version"
