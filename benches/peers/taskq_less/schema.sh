#!/usr/bin/env bash
# schema.sh FOLDER DATABASE: taskq without what could be left out at all: no deadlines, so no leases, and without the two
# indexes by time, which only lists, tallies and retention read. It tells how much could be won there, and is no queue to run.
set -euo pipefail
psql -X -q -v ON_ERROR_STOP=1 -d "$2" -c 'CREATE EXTENSION taskq' -c "ALTER DATABASE \"$2\" SET taskq.lease = ''" \
    -c 'DROP INDEX taskq.task_inserted_idx, taskq.settled_at_idx'
echo '' >"$1/version"
