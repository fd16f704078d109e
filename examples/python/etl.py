"""A day's data: extracted in parts, loaded once, copied to two of three replicas, approved by a person, published.

    python etl.py setup                                 # tables, settings, the nightly schedule
    python etl.py backfill 2026-11-01 2026-11-07        # a run for each day; days that have one are left alone
    taskq-pg work etl:app
    python etl.py approve 2026-11-01 ann

Each step is done once, however often workers die in between. What waits (for parts, a quorum, a person) holds no worker.
"""

import sys
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import psycopg

import taskq_pg as taskq

app = taskq.App(name="etl", version=1)  # PGHOST, PGDATABASE and the like say where

PARTS, REPLICAS, QUORUM = 4, ("eu", "us", "ap"), 2

TABLES = """
CREATE TABLE IF NOT EXISTS staged (day date, part int, n int, PRIMARY KEY (day, part, n));
CREATE TABLE IF NOT EXISTS facts (day date PRIMARY KEY, rows int, published_by text);
"""


@dataclass
class Part:
    day: date
    part: int


@dataclass
class Copy:
    day: date
    replica: str


@app.task("extract", max_tries=5, max_concurrency=2)
def extract(body: Part, task: taskq.Task) -> None:
    """Fetch a part and stage it: the rows and the end of the task commit together, so each part is there once."""
    rows = [(body.day, body.part, n) for n in range(10)]
    with app.connections.use() as connection, connection.transaction():
        connection.cursor().executemany("INSERT INTO staged VALUES (%s, %s, %s)", rows)
        task.complete(connection=connection, result=len(rows))


@app.task("copy", max_tries=2, backoff={"kind": "fixed", "initial": "1 second"})
def copy(body: Copy) -> str:
    """Copy a day to a replica. One of them is down today."""
    if body.replica == "ap":
        raise ConnectionError("ap does not answer")
    return body.replica


@app.workflow("day", max_tries=3)
def run(ctx: taskq.Context, body: date | None) -> dict[str, Any]:
    # A run of the schedule has its time in the id: nightly@2026-11-29T01:00:00Z.
    day = body or date.fromisoformat(ctx.id.partition("@")[2][:10])
    counts = ctx.map("extract", extract, [Part(day, n) for n in range(PARTS)])
    with ctx.transaction("load") as statements:
        statements.execute("INSERT INTO facts VALUES (%s, %s)", [day, sum(counts)])

    ctx.transaction("copy", insert_copies, ctx.id, day)
    ctx.wait_for("copied", tasks=[f"{ctx.id}/quorum"])

    try:
        approval = ctx.wait_for("approved", signal=f"publish {day}", timeout="2 days")
    except taskq.TimedOut:
        raise taskq.Reject("it was not approved in time") from None
    with ctx.transaction("publish") as statements:
        statements.execute("UPDATE facts SET published_by = %s WHERE day = %s", [approval["by"], day])
    return {"rows": sum(counts), "by": approval["by"]}


def insert_copies(connection: psycopg.Connection[Any], run_id: str, day: date) -> list[str]:
    """Insert a task for each replica, and one that has completed as soon as enough of them have."""
    copies: list[dict[str, Any]] = [
        {"id": f"{run_id}/copy/{replica}", "action": copy, "body": Copy(day, replica)} for replica in REPLICAS
    ]
    quorum = {"id": f"{run_id}/quorum", "action": "quorum", "spontaneous": True, "num_required": QUORUM}
    quorum["depends_on"] = [task["id"] for task in copies]
    return [str(task) for task in app.insert_tasks([*copies, quorum], connection=connection)]


app.schedule("nightly", "0 1 * * *", run, backfill="all", overlap="queue", max_backfill=7)


def backfill(first: date, last: date) -> int:
    """Insert a run for each day, unless it has one; returns how many are new."""
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    runs = run.insert_many(days, ids=[f"day {day}" for day in days], on_conflict="skip", priority=-10)
    return sum(one.inserted for one in runs)


def main(command: str, *arguments: str) -> None:
    with app:
        if command == "setup":
            with app.connections.use() as connection:
                connection.execute(TABLES)
            app.setup(prune=True)
        elif command == "backfill":
            print(backfill(*map(date.fromisoformat, arguments)), "runs")
        elif command == "approve":
            day, name = arguments
            print("approved" if app.signal(f"publish {day}", {"by": name}) else "approved before")


if __name__ == "__main__":
    main(*sys.argv[1:])
