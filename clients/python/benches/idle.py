"""Workers that have nothing to do, and what a worker keeps: latency, processor time, memory.

    PGHOST=... python idle.py [--queues taskq,procrastinate]

* Latency: from before the insertion of a single task to the call of its handler, with 1 and with 50 idle workers: 40
  tasks, or as many as a queue performs one after the other in 15 seconds.
* Processor time of 20 idle workers, and of the server for them, over ten seconds.
* Memory: resident size of one worker after 1,000 tasks and after 100,000, or as many as a queue performs in 25 seconds.

Each worker is a process of its own, as in noop.py.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import noop
import psycopg

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MANY = 100_000


@contextmanager
def workers(
    queue: str, conninfo: str, how_many: int, number: int, concurrency: int
) -> Iterator[tuple[list[int], IO[str]]]:
    """Their process ids, and what all of them print."""
    reading, writing = os.pipe()
    command = [sys.executable, noop.__file__, "--worker", queue, conninfo, str(number), str(concurrency)]
    started = [subprocess.Popen(command, stdout=writing, stderr=subprocess.DEVNULL) for _ in range(how_many)]
    os.close(writing)
    try:
        with os.fdopen(reading) as said:
            yield [worker.pid for worker in started], said
    finally:
        for worker in started:
            worker.kill()
        for worker in started:
            worker.wait()


def read(said: IO[str], key: str) -> float:
    for line in said:
        found = json.loads(line)
        if key in found:
            return found[key]
    raise SystemExit("the workers have ended")


def settle(conninfo: str, how_many: int) -> None:
    """Waits until so many workers are connected and have asked for tasks."""
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        while connection.execute(sql).fetchone()[0] < how_many:
            time.sleep(0.2)
    time.sleep(3)


def latency(queue: str, how_many: int, single: int = 40, seconds: float = 15) -> list[float]:
    conninfo = noop.database(queue)
    producer = noop.PRODUCERS[queue](conninfo)
    with workers(queue, conninfo, how_many, 10**9, 10) as (_, said):
        settle(conninfo, how_many)
        found: list[float] = []
        until = time.monotonic() + seconds
        while len(found) < single and time.monotonic() < until:
            time.sleep(0.05)
            producer.one(time.time())
            found.append(1000 * read(said, "latency"))
        return found


def used(pids: list[int]) -> float:
    """Seconds of processor time of these processes."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / TICKS


def idle(queue: str, how_many: int, seconds: float = 10) -> tuple[float, float]:
    """Of workers and of the server: hundredths of a core."""
    conninfo = noop.database(queue)
    noop.PRODUCERS[queue](conninfo)
    sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with workers(queue, conninfo, how_many, 10**9, 10) as (pids, _):
        settle(conninfo, how_many)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            backends = [pid for (pid,) in connection.execute(sql)]
        before = used(pids), used(backends)
        time.sleep(seconds)
        after = used(pids), used(backends)
    return 100 * (after[0] - before[0]) / seconds, 100 * (after[1] - before[1]) / seconds


def memory(queue: str, seconds: float = 25) -> tuple[float, int, float]:
    """Resident size in MB after 1,000 tasks, how many came afterwards, and the size after these."""
    conninfo = noop.database(queue)
    producer = noop.PRODUCERS[queue](conninfo)
    with workers(queue, conninfo, 1, 1000, 100) as ([pid], said):

        def perform() -> int:
            producer.many(1000)
            read(said, "done")
            return 1000

        def size() -> float:
            time.sleep(0.5)
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6

        perform()
        first = size()
        many, until = 0, time.monotonic() + seconds
        while many < MANY and time.monotonic() < until:
            many += perform()
        return first, many, size()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", default=",".join(noop.QUEUES))
    queues = parser.parse_args().queues.split(",")
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    print("Idle workers, and what a worker keeps;", noop.machine())
    print()
    print(
        "| queue | latency ms, 1 idle worker: median, 95 % | 50 idle workers"
        " | 20 idle workers, % of a core | the server for them | MB after 1,000 tasks | and after |"
    )
    print("|---|---|---|---|---|---|---|")
    for queue in queues:
        cells = []
        for how_many in (1, 50):
            found = sorted(latency(queue, how_many))
            cells.append(f"{statistics.median(found):.1f}, {found[int(0.95 * (len(found) - 1))]:.1f}")
        cells.extend(f"{share:.1f}" for share in idle(queue, 20))
        first, many, last = memory(queue)
        cells.extend([f"{first:.0f}", f"{many:,}: {last:.0f}"])
        print(f"| {queue} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
