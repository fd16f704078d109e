"""Tasks that do nothing, in one worker process: how many a second, and how soon after their insertion.

    PGHOST=... python noop.py [--tasks 2000] [--rounds 3]

Beside taskq-pg stand procrastinate, pgqueuer and absurd; benches/run.sh installs all four. Each worker is a process
of its own, that is started before its tasks are inserted, and performs coroutines that do nothing. The queues take
turns in each round, so that what else the machine does meets all of them alike. The rate is from the insertion of all
tasks, by one call, to the end of the last; latency is that of single tasks, inserted one at a time into an idle
queue, from before the insertion to the call of the handler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
            # As shipped but for the number of jobs at once; it listens for new ones.
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


def measure(queue: str, number: int, concurrency: int, single: int) -> tuple[float, list[float]]:
    """The rate, and latencies of single tasks, of a fresh database and a fresh worker."""
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
        rate = number / (time.perf_counter() - began)
        latencies = []
        for _ in range(single):
            time.sleep(0.05)
            producer.one(time.time())
            latencies.append(read(worker, "latency"))
        return rate, latencies
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
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--single", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.worker:
        queue, conninfo, number, concurrency = options.worker
        globals()[queue](conninfo, int(number), int(concurrency))
        return
    rates: dict[tuple[str, int], list[float]] = {}
    latencies: dict[tuple[str, int], list[float]] = {}
    print("load at the beginning:", *Path("/proc/loadavg").read_text().split()[:3], "on", os.cpu_count(), "cores")
    for _ in range(options.rounds):
        for concurrency in CONCURRENCY:
            for queue in QUEUES:
                rate, single = measure(queue, options.tasks, concurrency, options.single)
                rates.setdefault((queue, concurrency), []).append(rate)
                latencies.setdefault((queue, concurrency), []).extend(single)
    print("load at the end:", *Path("/proc/loadavg").read_text().split()[:3])
    print()
    print("| queue | at once | tasks a second: median | least | most | latency ms: median | 95 % |")
    print("|---|---|---|---|---|---|---|")
    for (queue, concurrency), found in sorted(rates.items(), key=lambda item: (item[0][1], QUEUES.index(item[0][0]))):
        single = sorted(latencies[queue, concurrency])
        late = single[int(0.95 * (len(single) - 1))]
        print(
            f"| {queue} | {concurrency} | {statistics.median(found):,.0f} | {min(found):,.0f} | {max(found):,.0f}"
            f" | {1000 * statistics.median(single):.1f} | {1000 * late:.1f} |"
        )


if __name__ == "__main__":
    main()
