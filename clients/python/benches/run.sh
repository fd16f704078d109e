#!/usr/bin/env bash
# Measures in a fresh environment with the four queues: PGHOST=... benches/run.sh
#
# ALONE is a command that runs another: each part is measured through it. `ALONE='flock FILE'` keeps two measurements apart.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd -P)
folder=$(mktemp -d "${TMPDIR:-/tmp}/taskq-bench-XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check "$here/..[binary]" procrastinate==3.10.0 pgqueuer==1.6.0 \
    absurd-sdk==0.5.1 absurdctl==0.5.1
# shellcheck disable=SC2086  # a command and its arguments, or none
${ALONE:-} "$folder/bin/python" "$here/noop.py" --rounds "${ROUNDS:-3}"
echo
# shellcheck disable=SC2086
${ALONE:-} "$folder/bin/python" "$here/idle.py"
