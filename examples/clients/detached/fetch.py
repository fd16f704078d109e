"""Fetches one task and hands it to a detached process, which goes on alone: this one may end, or be restarted.

    PGHOST=... PGDATABASE=... python fetch.py ACTION LEASE_SECONDS COMMAND [ARGUMENT ...]

The command finds what it needs in its environment: TASKQ_TASK_ID and TASKQ_TOKEN are all that it takes to report,
extend and return. Exit code 0: a task was handed over; 3: there was none.
"""

import json
import os
import subprocess
import sys

import psycopg


def main():
    action, lease, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    with psycopg.connect(autocommit=True) as connection:
        row = connection.execute(
            """SELECT task_id, token, body, checkpoint
                 FROM taskq.own_tasks(%s, 1, ARRAY[%s], %s * interval '1 second', wait => '10 seconds')""",
            [f"fetcher {os.getpid()}", action, float(lease)],
        ).fetchone()
    if row is None:
        sys.exit(3)
    task_id, token, body, checkpoint = row
    environment = os.environ | {
        "TASKQ_TASK_ID": task_id,
        "TASKQ_TOKEN": str(token),
        "TASKQ_LEASE": lease,
        "TASKQ_BODY": body or "",
        "TASKQ_CHECKPOINT": json.dumps(checkpoint),
    }
    # A session of its own: neither our end nor a signal to our process group reaches it.
    child = subprocess.Popen(command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(child.pid, flush=True)
    os._exit(0)  # without waiting for the child


if __name__ == "__main__":
    main()
