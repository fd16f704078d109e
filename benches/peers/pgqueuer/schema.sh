#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: what `pgq install` does, and the statements that the package builds into FOLDER/statements.
set -euo pipefail
mkdir -p "$1/statements"
"$1/environment/bin/python" "$(dirname "$0")/statements.py" "$1"
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -f "$1/schema.sql" >"$1/schema.log"
