#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: what `procrastinate schema --apply` does, and the statements of the package, which keeps
# them in a file of its own, into FOLDER/statements. Each of our clients is a worker that has registered.
set -euo pipefail
mkdir -p "$1/statements"
"$1/environment/bin/python" "$(dirname "$0")/statements.py" "$1"
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -f "$1/schema.sql" \
    -c 'SELECT procrastinate_register_worker_v1() FROM generate_series(1, 64)' >"$1/schema.log"
