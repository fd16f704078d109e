#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: the thinnest table that can be a queue: no lease, no token, no graph, no record of what is
# done.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 -d "$2" \
    -c 'CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL)'
echo '' >"$1/version"
