#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh environment, and tests what is installed there.
#
#   PG_CONFIG=... PGHOST=... [PGPORT=... PGUSER=...] clients/python/test.sh [ARGUMENT OF PYTEST...]
#
# The server is to have the extension, and the role is to be a superuser: each test makes a database of its own. PG_CONFIG
# is for the tests that stop a server: they start another one with the same programs. PYTHON names the interpreter, CHROMIUM the
# browser.
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
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel[binary,otel,django,sqlalchemy,http,console,dev]"

# What looks for barriers in the pages of the console.
npm install --silent --no-audit --no-fund --prefix "$folder/npm" axe-core@4.14.1 >"$folder/npm.log" 2>&1 || { cat "$folder/npm.log" >&2; exit 1; }
export AXE="$folder/npm/node_modules/axe-core/axe.min.js" CHROMIUM="${CHROMIUM:-chromium}"

cd "$here"
"$folder/venv/bin/ruff" check --quiet --no-cache .
"$folder/venv/bin/ruff" format --quiet --no-cache --check .
"$folder/venv/bin/mypy" --cache-dir "$folder/mypy"
# It runs on the machine's node, and downloads one only where there is none.
PYRIGHT_PYTHON_IGNORE_WARNINGS=1 "$folder/venv/bin/pyright" --pythonpath "$folder/venv/bin/python"
export PYTHONDONTWRITEBYTECODE=1
# What is given back stays so until a test has looked: an hour, but where a handler says when. The shipped second is over sooner
# than a busy machine comes to look.
export PGOPTIONS='-c taskq.backoff={"kind":"fixed","initial":"1h"}'
tests() { "$folder/venv/bin/python" -m pytest -o cache_dir="$folder/pytest" "$@"; }
code=0
tests "$@" || code=$?
# Many of the tests are about time, and the machine may be busy with others: what has failed is tried once
# more, after those (they hold the lock AFTER), and the log says so.
if [ "$code" -eq 1 ]; then
    code=0
    [ -z "${AFTER:-}" ] || flock "$AFTER" true
    tests --last-failed "$@" || code=$?
    [ "$code" -ne 0 ] || printf '\nclients/python: what had failed passed when it was run again\n'
fi
exit "$code"
