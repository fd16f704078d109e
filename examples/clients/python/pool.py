"""A worker for taskq with many tasks at once (psycopg 3, asyncio): one heartbeat for all of them, returns in batches
that bring the next tasks along.

    PGHOST=... PGDATABASE=... python pool.py [ACTION] [TASKS]

Two connections, however many tasks: one sleeps until there is work, the other extends, returns and takes the next.
SIGTERM or SIGINT: it takes no more, lets the tasks in hand finish within the grace, and gives back what does not. A task
that was cancelled or taken over is dropped as soon as a heartbeat hears of it.
"""

import asyncio
import hashlib
import json
import logging
import os
import random
import signal
import socket
import sys
import time

import psycopg

ACTION = sys.argv[1] if len(sys.argv) > 1 else "checksum"
TASKS = int(sys.argv[2]) if len(sys.argv) > 2 else 10  # at once
ACTOR = f"{socket.gethostname()}:{os.getpid()}"
LEASE = float(os.environ.get("TASKQ_LEASE", 60))  # seconds that a death of this process goes unnoticed
GRACE = float(os.environ.get("TASKQ_GRACE", 20))  # seconds to finish after SIGTERM; less than the supervisor grants
WAIT = 10  # seconds of one waiting call

log = logging.getLogger("pool")


class Rejected(Exception):
    """The task can never succeed: no further try makes sense."""


async def perform(task):
    """The work itself. It is cancelled at an await when the task is lost or the grace is over."""
    try:
        body = json.loads(task["body"])
    except (TypeError, ValueError) as error:
        raise Rejected(f"the body cannot be read: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("text"), str):
        raise Rejected("the body lacks a text")
    if "fail" in body:
        raise OSError(body["fail"])  # anything else may work the next time
    await asyncio.sleep(body.get("seconds", 0))
    sha256 = hashlib.sha256(body["text"].encode()).hexdigest()
    return {"sha256": sha256, "head": body["text"][:10], "client": "python pool"}


class Link:
    """One connection, opened again as often as it takes."""

    def __init__(self):
        self.connection = None
        self.lock = asyncio.Lock()
        self.give_up_at = float("inf")

    async def call(self, query, **arguments):
        """The rows of a query in a transaction of its own. A query may run twice if its answer gets lost."""
        async with self.lock:
            delay = 0.1
            while True:
                try:
                    if self.connection is None or self.connection.closed:
                        self.connection = await connect()
                    return await (await self.connection.execute(query, arguments)).fetchall()
                except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction) as error:
                    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                        # A standby, since a failover or not yet promoted: another connection may find the primary.
                        await self.connection.close()
                    if self.connection is not None and not self.connection.closed:
                        raise  # the server's answer, not the loss of it
                    if time.monotonic() > self.give_up_at:
                        raise
                    log.warning("no connection, again in about %.1f s: %s", delay, error)
                await asyncio.sleep(delay * random.uniform(0.5, 1.5))
                delay = min(delay * 2, 10)


async def connect():
    """PGHOST and the like say where. Plain statements, so that PgBouncer may stand in between."""
    return await psycopg.AsyncConnection.connect(
        autocommit=True,
        prepare_threshold=None,
        application_name="taskq worker",
        connect_timeout=5,
        keepalives_idle=30,
        tcp_user_timeout=30_000,  # milliseconds until a vanished server is noticed
    )


# It has not failed: it uses up no try, and need not wait for the back-off.
GIVEN_BACK = {"status_code": "pending", "status": "given back by a worker that stops", "count_try": False}


class Performance:
    """A task in hand, until it is returned."""

    def __init__(self, task):
        self.task = task
        self.lost = False
        self.handler = None  # the asyncio task of the work
        self.outcome = None  # how it ended; None while it runs


class Pool:
    def __init__(self):
        self.waiter, self.link = Link(), Link()
        self.hand = []  # the performances
        self.stopping = self.waiting = False
        self.ended = asyncio.Event()  # a performance has
        self.returned = asyncio.Event()  # some are: there is room for others

    async def own(self, number):
        """Up to so many tasks. Sleeps in the server until there are some."""
        query = """SELECT task_id, token::text, body, num_tries
                     FROM taskq.own_tasks(%(actor)s, %(number)s, ARRAY[%(action)s], %(lease)s * interval '1 second',
                                          wait => %(wait)s * interval '1 second')"""
        try:
            self.waiting = True
            rows = [] if self.stopping else await self.waiter.call(
                query, actor=ACTOR, number=number, action=ACTION, lease=LEASE, wait=WAIT)
        except psycopg.errors.QueryCanceled:
            rows = []  # end_wait() has ended the wait; nothing was granted
        finally:
            self.waiting = False
        return [dict(zip(("id", "token", "body", "num_tries"), row)) for row in rows]

    async def heartbeats(self):
        """One call for all tasks in hand."""
        query = """SELECT owned FROM taskq.extend_tasks_ownership(
                     %(actor)s, %(ids)s, %(tokens)s::uuid[], %(lease)s * interval '1 second')"""
        while True:
            await asyncio.sleep(LEASE / 3)
            held = list(self.hand)
            if not held:
                continue
            try:
                rows = await self.link.call(
                    query, actor=ACTOR, lease=LEASE,
                    ids=[p.task["id"] for p in held], tokens=[p.task["token"] for p in held])
            except psycopg.Error as error:
                log.warning("no heartbeat: %s", error)
                continue
            # A row for each pair, in the order of the arrays.
            for performance, (owned,) in zip(held, rows):
                if not owned and performance.outcome is None:
                    log.warning("%s: lost", performance.task["id"])
                    performance.lost = True
                    performance.handler.cancel()

    def begin(self, task):
        performance = Performance(task)
        self.hand.append(performance)
        performance.handler = asyncio.create_task(self.work(task))
        performance.handler.add_done_callback(lambda handler: self.end(performance, handler))
        return performance

    def end(self, performance, handler):
        performance.outcome = GIVEN_BACK if handler.cancelled() else handler.result()
        self.ended.set()

    async def work(self, task):
        """Performs a task; how it ended is returned with what ends at the same time."""
        log.info("%s: try %s", task["id"], task["num_tries"])
        try:
            result = await perform(task)
            return {"status_code": "completed", "result": checked(result)}
        except Rejected as error:
            return {"status_code": "aborted", "status": printable(str(error))}
        except Exception as error:  # pylint: disable=broad-except
            log.exception("%s: failed", task["id"])
            # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
            return {"status_code": "pending", "status": printable(repr(error))}

    async def give(self, performances):
        """Returns tasks, and takes as many others, with one call; a bad token spoils only its own row."""
        returns = [{"task_id": p.task["id"], "token": p.task["token"], **p.outcome} for p in performances]
        query = """SELECT sqlstate, task_id, token::text, body, num_tries
                     FROM taskq.return_and_own_tasks(%(actor)s, %(returns)s::jsonb, %(number)s, ARRAY[%(action)s],
                                                     %(lease)s * interval '1 second')"""
        try:
            rows = await self.link.call(
                query, actor=ACTOR, returns=json.dumps(returns), action=ACTION, lease=LEASE,
                number=0 if self.stopping else len(performances))
        except psycopg.DataError as error:
            if len(performances) > 1:
                return [task for performance in performances for task in await self.give([performance])]
            if "result" not in performances[0].outcome:
                raise
            # JSON that the server cannot store, with a \u0000 for one. The next try would have no other.
            log.warning("%s: its result cannot be stored: %s", performances[0].task["id"], error)
            status = printable(f"its result cannot be stored: {error.diag.message_primary or error}")
            performances[0].outcome = {"status_code": "aborted", "status": status}
            return await self.give(performances)
        # TQ001, TQ003: cancelled, deleted, taken over, or returned by us and only the answer was lost.
        for sqlstate, task_id in (row[:2] for row in rows if row[0]):
            log.info("%s: dropped, it is not ours any more (%s)", task_id, sqlstate)
        return [dict(zip(("id", "token", "body", "num_tries"), row[1:])) for row in rows if not row[0]]

    async def returns(self):
        """Whatever has ended since the last call goes back with the next, which brings others in its place."""
        while True:
            await self.ended.wait()
            self.ended.clear()
            ended = [p for p in self.hand if p.outcome is not None]
            kept = [p for p in ended if not p.lost]
            tasks = await self.give(kept) if kept else []
            self.hand = [p for p in self.hand if p not in ended]
            for task in tasks:
                performance = self.begin(task)
                if self.stopping:  # since the call was made
                    performance.handler.cancel()
            self.returned.set()

    async def run(self):
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self.stop)
        # If one of them fails, all end: the leases do the rest.
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(self.heartbeats()), group.create_task(self.returns())]
            while not self.stopping:
                room = TASKS - len(self.hand)
                if room == 0:
                    self.returned.clear()
                    await self.returned.wait()
                    continue
                for task in await self.own(room):
                    self.begin(task)
            await self.finish()
            while self.hand:
                self.returned.clear()
                await self.returned.wait()
            for helper in helpers:
                helper.cancel()
        log.info("stopped")

    async def finish(self):
        """The tasks in hand end within the grace, or are stopped."""
        handlers = [p.handler for p in self.hand]
        if handlers:
            _, late = await asyncio.wait(handlers, timeout=max(0, self.waiter.give_up_at - 5 - time.monotonic()))
            for handler in late:
                handler.cancel()

    def stop(self):
        """SIGTERM: no more tasks; those in hand have the grace to end."""
        if not self.stopping:
            self.stopping = True
            self.waiter.give_up_at = self.link.give_up_at = time.monotonic() + GRACE + 5
            self.returned.set()
            self.ending = asyncio.create_task(self.end_wait())

    async def end_wait(self):
        """Cancels the call that sleeps: it is granted nothing then, or the grant was committed before and is performed."""
        while self.waiting:
            if self.waiter.connection is not None and not self.waiter.connection.closed:
                await self.waiter.connection.cancel_safe(timeout=5)
            await asyncio.sleep(0.2)


def checked(result):
    """The result, which must be JSON. One that is none must not end the worker: the task is rejected."""
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Rejected(f"its result is no JSON: {error}") from error
    return result


def printable(text):
    """What a text of PostgreSQL can hold."""
    return text.replace("\0", "").encode(errors="replace").decode()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(Pool().run())
