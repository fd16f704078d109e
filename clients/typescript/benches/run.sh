#!/usr/bin/env bash
# Builds the package, and measures it beside graphile-worker and pg-boss: PGHOST=... benches/run.sh. ALONE as in that of Python.
set -euo pipefail
cd "$(dirname "$0")"
quiet=(--no-audit --no-fund --loglevel=error)
(cd .. && npm ci "${quiet[@]}" && npm run --silent build) >/dev/null
npm ci "${quiet[@]}" >/dev/null
# shellcheck disable=SC2086  # a command and its arguments, or none
${ALONE:-} node bench.mjs
echo
# shellcheck disable=SC2086
${ALONE:-} node idle.mjs
echo
# shellcheck disable=SC2086
${ALONE:-} node cancel.mjs
