#!/usr/bin/env bash
# Measures in a fresh environment with the three queues: PGHOST=... benches/run.sh [ARGUMENT OF noop.py...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
folder=$(mktemp -d "${TMPDIR:-/tmp}/taskq-bench-XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check "$here/..[binary]" procrastinate==3.10.0 pgqueuer==1.6.0
"$folder/bin/python" "$here/noop.py" "$@"
