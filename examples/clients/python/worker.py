"""A worker for taskq in Python (psycopg 3): own, heartbeat, return.

    PGHOST=... PGDATABASE=... python worker.py [ACTION]

It performs one task at a time; run as many processes as you want tasks at once, or pool.py. SIGTERM or SIGINT: it takes no
more, lets the task in hand finish within the grace, and gives it back if that does not suffice. A task that was
cancelled or taken over is dropped as soon as a heartbeat hears of it.
"""

import hashlib
import json
import logging
import os
import random
import signal
import socket
import sys
import threading
import time

import psycopg

ACTION = sys.argv[1] if len(sys.argv) > 1 else "checksum"
ACTOR = f"{socket.gethostname()}:{os.getpid()}"
LEASE = float(os.environ.get("TASKQ_LEASE", 60))  # seconds that a death of this process goes unnoticed
GRACE = float(os.environ.get("TASKQ_GRACE", 20))  # seconds to finish after SIGTERM; less than the supervisor grants
WAIT = 10  # seconds of one waiting call

log = logging.getLogger("worker")


class Interrupted(Exception):
    """The handler has stopped because it was asked to."""


class Rejected(Exception):
    """The task can never succeed: no further try makes sense."""


def perform(task, interrupt):
    """The work itself. It must notice `interrupt`; its result is kept with the task."""
    try:
        body = json.loads(task["body"])
    except (TypeError, ValueError) as error:
        raise Rejected(f"the body cannot be read: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        raise Rejected("the body lacks a text")
    if "fail" in body:
        raise OSError(body["fail"])  # anything else may work the next time
    if interrupt.wait(body.get("seconds", 0)):
        raise Interrupted
    return {"sha256": hashlib.sha256(body["text"].encode()).hexdigest(), "head": body["text"][:10], "client": "python"}


class Queue:
    """One connection, opened again as often as it takes. Threads may share it."""

    def __init__(self):
        self.connection = None
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.give_up_at = float("inf")
        self.waiting = False

    def call(self, query, **arguments):
        """The rows of a query in a transaction of its own. A query may run twice if its answer gets lost."""
        with self.lock:
            delay = 0.1
            while True:
                try:
                    if self.connection is None or self.connection.closed:
                        self.connection = connect()
                    return self.connection.execute(query, arguments).fetchall()
                except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction) as error:
                    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                        # A standby, since a failover or not yet promoted: another connection may find the primary.
                        self.connection.close()
                    if self.connection is not None and not self.connection.closed:
                        raise  # the server's answer, not the loss of it
                    if time.monotonic() > self.give_up_at:
                        raise
                    log.warning("no connection, again in about %.1f s: %s", delay, error)
                time.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, 10)

    def own(self):
        """The next task, or None. Sleeps in the server until there is one."""
        query = """SELECT task_id, token, body, num_tries
                     FROM taskq.own_tasks(%(actor)s, 1, ARRAY[%(action)s], %(lease)s * interval '1 second',
                                          wait => %(wait)s * interval '1 second')"""
        try:
            self.waiting = True
            rows = [] if self.stopping.is_set() else self.call(query, actor=ACTOR, action=ACTION, lease=LEASE, wait=WAIT)
        except psycopg.errors.QueryCanceled:
            rows = []  # stop() has ended the wait; nothing was granted
        finally:
            self.waiting = False
        return dict(zip(("id", "token", "body", "num_tries"), rows[0])) if rows else None

    def extend(self, task):
        """Moves the deadline; False if the task is not ours any more."""
        query = """SELECT owned FROM taskq.extend_tasks_ownership(
                     %(actor)s, ARRAY[%(id)s], ARRAY[%(token)s], %(lease)s * interval '1 second')"""
        return self.call(query, actor=ACTOR, lease=LEASE, **keys(task))[0][0]

    def give(self, task, code, status=None, result=None, count_try=True):
        """Ends the performance."""
        query = """SELECT taskq.return_task(%(id)s, %(token)s, %(code)s, %(status)s, result => %(result)s,
                                            count_try => %(count_try)s)"""
        try:
            [[got]] = self.call(query, code=code, status=status, result=result, count_try=count_try, **keys(task))
            log.info("%s: %s", task["id"], got)
        except psycopg.DataError as error:
            if result is None:
                raise
            # JSON that the server cannot store, with a \u0000 for one. The next try would have no other.
            log.warning("%s: its result cannot be stored: %s", task["id"], error)
            self.give(task, "aborted", printable(f"its result cannot be stored: {error.diag.message_primary or error}"))
        except psycopg.Error as error:
            if error.sqlstate not in ("TQ001", "TQ003"):
                raise
            # Cancelled, deleted, taken over, or returned by us and only the answer was lost.
            log.warning("%s: dropped, it is not ours any more", task["id"])

    def stop(self, *_):
        """SIGTERM: no more tasks; the one in hand has the grace to end."""
        self.stopping.set()
        self.give_up_at = time.monotonic() + GRACE + 5
        if self.waiting and self.connection is not None and not self.connection.closed:
            self.connection.cancel_safe(timeout=5)


def to_json(result):
    """The result as JSON. One that is none must not end the worker: the task is rejected."""
    try:
        return None if result is None else json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Rejected(f"its result is no JSON: {error}") from error


def printable(text):
    """What a text of PostgreSQL can hold."""
    return text.replace("\0", "").encode(errors="replace").decode()


def keys(task):
    return {"id": task["id"], "token": task["token"]}


def connect():
    """PGHOST and the like say where. Plain statements, so that PgBouncer may stand in between."""
    return psycopg.connect(
        autocommit=True,
        prepare_threshold=None,
        application_name="taskq worker",
        connect_timeout=5,
        keepalives_idle=30,
        tcp_user_timeout=30_000,  # milliseconds until a vanished server is noticed
    )


def heartbeat(queue, task, interrupt, done):
    """Extends the lease in time, and tells the handler to stop when the task or the grace is gone."""
    beat = time.monotonic()
    while not done.wait(min(LEASE / 3, 0.5)):
        if time.monotonic() > queue.give_up_at - 5:
            interrupt.set()
        if time.monotonic() - beat >= LEASE / 3:
            beat = time.monotonic()
            try:
                if not queue.extend(task):
                    log.warning("%s: lost", task["id"])
                    interrupt.set()
            except psycopg.Error as error:
                log.warning("%s: no heartbeat: %s", task["id"], error)


def work(queue, task):
    """Performs a task and returns it, whatever happens."""
    log.info("%s: try %s", task["id"], task["num_tries"])
    interrupt, done = threading.Event(), threading.Event()
    beats = threading.Thread(target=heartbeat, args=(queue, task, interrupt, done))
    beats.start()
    try:
        outcome = {"code": "completed", "result": to_json(perform(task, interrupt))}
    except Interrupted:
        # It has not failed: it uses up no try, and need not wait for the back-off.
        outcome = {"code": "pending", "status": "given back by a worker that stops", "count_try": False}
    except Rejected as error:
        outcome = {"code": "aborted", "status": printable(str(error))}
    except Exception as error:  # pylint: disable=broad-except
        log.exception("%s: failed", task["id"])
        # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
        outcome = {"code": "pending", "status": printable(repr(error))}
    finally:
        done.set()
        beats.join()
    queue.give(task, **outcome)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    queue = Queue()
    signal.signal(signal.SIGTERM, queue.stop)
    signal.signal(signal.SIGINT, queue.stop)
    while not queue.stopping.is_set():
        task = queue.own()
        if task:
            work(queue, task)
    log.info("stopped")


if __name__ == "__main__":
    main()
