#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: the thinnest table that can be a queue whose workers may die: what is claimed is marked,
# with a token, and stays until it is completed. No graph, no limits, no record of what is done; nothing looks after the
# marks.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -c 'CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload text NOT NULL, token uuid, deadline timestamptz)'
echo '' >"$1/version"
