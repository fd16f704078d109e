#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: migrates the database, and writes the statements of the client into FOLDER/statements.
set -euo pipefail
NODE_PATH=$1/node_modules PGDATABASE=$2 node "$(dirname "$0")/statements.mjs" "$1"
