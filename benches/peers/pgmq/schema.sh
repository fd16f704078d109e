#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: its functions, and a queue.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -f "$1/schema.sql" -c "SELECT pgmq.create('work')" >"$1/schema.log"
