#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh environment, and tests what is installed there.
#
#   PG_CONFIG=... PGHOST=... [PGPORT=... PGUSER=...] clients/python/test.sh [ARGUMENT OF PYTEST...]
#
# The server is to have the extension, and the role is to be a superuser: each test makes a database of its own. PG_CONFIG
# is for the tests that stop a server: they start another one with the same programs. PYTHON names the interpreter.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
python=${PYTHON:-python3}
folder=$(mktemp -d "${TMPDIR:-/tmp}/taskq-python-XXXXXX")
trap 'rm -rf "$folder"' EXIT

"$python" -m venv "$folder/build" "$folder/venv"
"$folder/build/bin/pip" install --quiet --disable-pip-version-check build
"$folder/build/bin/python" -m build --outdir "$folder/dist" "$here" >"$folder/build.log" 2>&1 ||
    { cat "$folder/build.log" >&2; exit 1; }
wheel=$(echo "$folder"/dist/*.whl)
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel[binary,otel,django,sqlalchemy,http,dev]"

cd "$here"
"$folder/venv/bin/ruff" check --quiet --no-cache .
"$folder/venv/bin/ruff" format --quiet --no-cache --check .
"$folder/venv/bin/mypy" --cache-dir "$folder/mypy"
PYTHONDONTWRITEBYTECODE=1 "$folder/venv/bin/python" -m pytest -p no:cacheprovider "$@"
