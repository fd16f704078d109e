#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: what `absurdctl init` does, and a queue.
set -euo pipefail
"$1/environment/bin/python" -c 'import absurdctl; print(absurdctl.BUNDLED_SCHEMA_SQL)' >"$1/schema.sql"
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -f "$1/schema.sql" -c "SELECT absurd.create_queue('work')" >"$1/schema.log"
