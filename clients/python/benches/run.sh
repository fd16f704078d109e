#!/usr/bin/env bash
# Measures in a fresh environment with the four queues: PGHOST=... benches/run.sh [ARGUMENT OF noop.py...]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
folder=$(mktemp -d "${TMPDIR:-/tmp}/taskq-bench-XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check "$here/..[binary]" procrastinate==3.10.0 pgqueuer==1.6.0 \
    absurd-sdk==0.5.1 absurdctl==0.5.1
"$folder/bin/python" "$here/noop.py" "$@"
"$folder/bin/python" "$here/idle.py"
