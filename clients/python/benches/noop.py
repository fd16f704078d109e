"""Tasks that do nothing, in one worker process: how many a second.

    PGHOST=... python noop.py [--rounds 3]

Beside taskq-pg stand procrastinate, pgqueuer and absurd; benches/run.sh installs all four. Each worker is a process
of its own, that is started before its tasks are inserted, and performs coroutines that do nothing. The queues take
turns in each round, so that what else the machine does meets all of them alike. The rate is from the insertion of all
tasks, by one call, to the end of the last. Each queue gets as many tasks as it needs a few seconds for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

QUEUES = ("taskq", "procrastinate", "pgqueuer", "absurd")
CONCURRENCY = (1, 10, 100)
TASKS = {
    "taskq": (2000, 5000, 10_000),
    "procrastinate": (500, 1000, 1000),
    "pgqueuer": (200, 250, 250),
    "absurd": (500, 1000, 1500),
}


# Workers: each prints a line when a number of tasks is done, or for each task if it is asked for latency.


class Count:
    """Counts what handlers are given, and tells the parent."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.done = 0

    def __call__(self, began: float | None = None) -> None:
        self.done += 1
        if began is not None:
            print(json.dumps({"latency": time.time() - began}), flush=True)
        if self.done % self.number == 0:
            print(json.dumps({"done": self.done}), flush=True)


def taskq(conninfo: str, number: int, concurrency: int) -> None:
    from taskq_pg import App

    app, count = App(conninfo), Count(number)

    @app.task("noop")
    async def noop(began: float | None) -> None:
        count(began)

    app.work(concurrency=concurrency)


def procrastinate(conninfo: str, number: int, concurrency: int) -> None:
    app, count = procrastinate_app(conninfo), Count(number)

    @app.task(name="noop", queue="noop")
    async def noop(began: float | None) -> None:
        count(began)

    async def main() -> None:
        async with app.open_async():
            # As shipped except the number of jobs at once; it listens for new ones.
            await app.run_worker_async(queues=["noop"], concurrency=concurrency, delete_jobs="never")

    asyncio.run(main())


def procrastinate_app(conninfo: str):
    import procrastinate

    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=conninfo))


def pgqueuer(conninfo: str, number: int, concurrency: int) -> None:
    count = Count(number)

    async def main() -> None:
        from pgqueuer import PgQueuer
        from pgqueuer.db import PsycopgDriver

        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
        queuer = PgQueuer(PsycopgDriver(connection))

        @queuer.entrypoint("noop")
        async def noop(job) -> None:
            count(json.loads(job.payload) if job.payload else None)

        # It performs what it has dequeued all at once, so this is the nearest to so many at once.
        await queuer.run(batch_size=concurrency, max_concurrent_tasks=2 * concurrency)

    asyncio.run(main())


def absurd(conninfo: str, number: int, concurrency: int) -> None:
    count = Count(number)

    async def main() -> None:
        from absurd_sdk import AsyncAbsurd

        app = AsyncAbsurd(conninfo, queue_name="noop")

        @app.register_task("noop")
        async def noop(params, context) -> None:
            count(params)

        await app.start_worker(concurrency=concurrency)

    asyncio.run(main())


# Producers.


class Taskq:
    def __init__(self, conninfo: str) -> None:
        from taskq_pg import App

        with psycopg.connect(conninfo) as connection:
            connection.execute("CREATE EXTENSION taskq")
        self.app = App(conninfo)

    def many(self, number: int) -> None:
        self.app.insert_many("noop", [None] * number)

    def one(self, began: float) -> None:
        self.app.insert("noop", began)


class Procrastinate:
    def __init__(self, conninfo: str) -> None:
        import procrastinate

        self.app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=conninfo))
        self.app.open()
        self.app.schema_manager.apply_schema()
        self.noop = self.app.configure_task("noop", queue="noop")

    def many(self, number: int) -> None:
        self.noop.batch_defer(*[{"began": None}] * number)

    def one(self, began: float) -> None:
        self.noop.defer(began=began)


class Pgqueuer:
    def __init__(self, conninfo: str) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self.open(conninfo))

    async def open(self, conninfo: str) -> None:
        from pgqueuer.db import PsycopgDriver
        from pgqueuer.queries import Queries

        connection = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
        self.queries = Queries(PsycopgDriver(connection))
        await self.queries.install()

    def many(self, number: int) -> None:
        self.runner.run(self.queries.enqueue(["noop"] * number, [None] * number, [0] * number))

    def one(self, began: float) -> None:
        self.runner.run(self.queries.enqueue("noop", json.dumps(began).encode()))


class Absurd:
    def __init__(self, conninfo: str) -> None:
        import absurdctl

        self.connection = psycopg.connect(conninfo, autocommit=True)
        self.connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        self.connection.execute("SELECT absurd.create_queue('noop')")

    def many(self, number: int) -> None:
        # Its client inserts one at a time.
        spawn = "SELECT absurd.spawn_task('noop', 'noop', 'null', '{}') FROM generate_series(1, %s)"
        self.connection.execute(spawn, [number])

    def one(self, began: float) -> None:
        self.connection.execute("SELECT absurd.spawn_task('noop', 'noop', %s, '{}')", [json.dumps(began)])


PRODUCERS = {"taskq": Taskq, "procrastinate": Procrastinate, "pgqueuer": Pgqueuer, "absurd": Absurd}


# Measuring.


def database(queue: str) -> str:
    name = f"taskq_bench_{queue}"
    with psycopg.connect(dbname="postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return make_conninfo(dbname=name)


def measure(queue: str, number: int, concurrency: int) -> float:
    """The rate of a fresh database and a fresh worker."""
    conninfo = database(queue)
    producer = PRODUCERS[queue](conninfo)
    command = [sys.executable, __file__, "--worker", queue, conninfo, str(number), str(concurrency)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert worker.stdout is not None
    try:
        # It is there when it has performed so many; and the server has planned and read what it will need.
        producer.many(number)
        read(worker, "done")
        began = time.perf_counter()
        producer.many(number)
        read(worker, "done")
        return number / (time.perf_counter() - began)
    finally:
        worker.kill()
        worker.wait()


def read(worker: subprocess.Popen, key: str) -> float:
    for line in worker.stdout:
        found = json.loads(line)
        if key in found:
            return found[key]
    raise SystemExit("the worker has ended")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=4, metavar=("QUEUE", "CONNINFO", "NUMBER", "CONCURRENCY"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.worker:
        queue, conninfo, number, concurrency = options.worker
        globals()[queue](conninfo, int(number), int(concurrency))
        return
    # Each has an app of procrastinate's in its main module, and is warned of that.
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    print(f"No-op tasks a second in one worker process, {options.rounds} rounds; {machine()}")
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for turn, concurrency in enumerate(CONCURRENCY):
            for queue in QUEUES:
                rate = measure(queue, TASKS[queue][turn], concurrency)
                rates.setdefault((queue, concurrency), []).append(rate)
    print("load at the end:", *Path("/proc/loadavg").read_text().split()[:3])
    print()
    print("| median (least-most) |" + "".join(f" {concurrency} at once |" for concurrency in CONCURRENCY))
    print("|---|---|---|---|")
    for queue in QUEUES:
        cells = []
        for concurrency in CONCURRENCY:
            found = rates[queue, concurrency]
            cells.append(f"{statistics.median(found):,.0f} ({min(found):,.0f}-{max(found):,.0f})")
        print(f"| {queue} | {' | '.join(cells)} |")


def machine() -> str:
    """What a figure depends on."""
    with psycopg.connect(dbname="postgres") as connection:
        settings = "SELECT current_setting('server_version'), current_setting('fsync')"
        version, fsync = connection.execute(settings).fetchone()
    load = " ".join(Path("/proc/loadavg").read_text().split()[:3])
    python = ".".join(map(str, sys.version_info[:3]))
    return f"PostgreSQL {version}, fsync {fsync}, Python {python}, {os.cpu_count()} cores, load before: {load}"


if __name__ == "__main__":
    main()
