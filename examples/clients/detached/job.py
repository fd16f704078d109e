"""A detached process that performs a task by itself: reports, extends, returns. It was started by fetch.py.

The body is {"steps": 10, "seconds": 0.5}: so many steps, so long each. After each step the checkpoint says how many
are done; a try that follows a crash goes on from there.
"""

import json
import os
import time

import psycopg

TASK = {"id": os.environ["TASKQ_TASK_ID"], "token": os.environ["TASKQ_TOKEN"]}
LEASE = float(os.environ["TASKQ_LEASE"])


def call(query, **arguments):
    """One call on a connection of its own: between two steps, however long they take, there is none to lose."""
    delay = 0.1
    while True:
        try:
            with psycopg.connect(autocommit=True, connect_timeout=5) as connection:
                return connection.execute(query, TASK | arguments).fetchone()[0]
        except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction) as error:
            # 25006: a standby, since a failover or not yet promoted.
            if error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P", "53300", "25006")):
                raise
        time.sleep(delay)
        delay = min(delay * 2, LEASE / 4)


def report(done, steps):
    """Progress and checkpoint, and another lease: a step must take less than that."""
    call(
        "SELECT taskq.report_status(%(id)s, %(token)s::uuid, %(status)s, %(progress)s, %(checkpoint)s)::text",
        status=f"{done} of {steps} steps",
        progress=done / steps,
        checkpoint=json.dumps({"done": done}),
    )
    query = """SELECT owned FROM taskq.extend_tasks_ownership(
                 %(actor)s, ARRAY[%(id)s], ARRAY[%(token)s::uuid], %(lease)s * interval '1 second')"""
    return call(query, actor=f"job {os.getpid()}", lease=LEASE)


def main():
    checkpoint = json.loads(os.environ["TASKQ_CHECKPOINT"]) or {"done": 0}
    begun = checkpoint["done"]
    try:
        try:
            body = json.loads(os.environ["TASKQ_BODY"])
            steps, seconds = int(body["steps"]), float(body["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            # The next try would read nothing else.
            query = "SELECT taskq.return_task(%(id)s, %(token)s::uuid, 'aborted', %(status)s)"
            return call(query, status=f"the body cannot be read: {error!r}")
        for done in range(begun, steps):
            if not report(done, steps):
                return  # cancelled, or another job has it by now
            time.sleep(seconds)
        result = json.dumps({"begun_at": begun, "pid": os.getpid()})
        call("SELECT taskq.return_task(%(id)s, %(token)s::uuid, result => %(result)s)", result=result)
    except psycopg.Error as error:
        if error.sqlstate not in ("TQ001", "TQ003"):
            raise


if __name__ == "__main__":
    main()
