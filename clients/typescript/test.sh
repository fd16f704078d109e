#!/usr/bin/env bash
# Tests the package as its users get it: builds the archive, installs it into a fresh folder, and runs there what is in
# test. Wants Node 20 and npm, and a server with the extension: PGHOST and its like say where, as a superuser.
#
#   test.sh [PATTERN]     only the test files whose names match
#
# TASKQ_TEST_LONG=1 runs the long tests as well. TASKQ_KILLS=200 says how often workflows are killed. With PG_CONFIG, the
# tests that stop servers make one of their own with its programs; without, they are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
repository=$(cd ../.. && pwd)

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
quiet=(--no-audit --no-fund --loglevel=error)

npm ci "${quiet[@]}"
npx biome check --error-on-warnings .
npm pack "${quiet[@]}" --pack-destination "$fresh" >/dev/null

cp -r test "$fresh/test"
rm -rf "$fresh/test/build" "$fresh/test/node_modules"
cd "$fresh/test"
npm ci "${quiet[@]}"
npm install "${quiet[@]}" --no-save --ignore-scripts ../taskq-pg-*.tgz
TASKQ_DOCS=$repository/docs node extract.js docs
cp "$repository"/examples/fastify/*.ts docs/
npx tsc -p .

export TASKQ_CONFORMANCE=$repository/clients/conformance
export TASKQ_CLUSTER=$repository/.ci/cluster.sh
# What is given back stays so until a test has looked: an hour, but where a handler says when. The shipped second is over sooner
# than a busy machine comes to look.
export PGOPTIONS='-c taskq.backoff={"kind":"fixed","initial":"1h"}'
tests() { node --test --test-reporter=spec --test-concurrency=4 --test-timeout=1800000 "$@" 2>&1 | tee "$fresh/log"; }
tests build/*"${1:-}"*.test.js && exit
# Many of the tests are about time, and the machine may be busy with others: the files in which something has failed are run
# once more, after those (they hold the lock AFTER), and the log says so.
mapfile -t failed < <(sed -nE 's/^test at (build\/[^:]+\.test\.js):.*/\1/p' "$fresh/log" | sort -u)
[ "${#failed[@]}" -gt 0 ] || exit 1
[ -z "${AFTER:-}" ] || flock "$AFTER" true
tests "${failed[@]}"
printf '\nclients/typescript: what had failed passed when it was run again\n'
