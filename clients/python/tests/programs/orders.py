"""A workflow of twenty steps for worker processes that are killed in the middle."""

import os
from typing import Any

import psycopg
from psycopg import sql

import taskq_pg as taskq

app = taskq.App(lease=os.environ.get("TEST_LEASE", "1 second"))


def book(connection: psycopg.Connection[Any], run: str, step: int) -> int:
    connection.execute("INSERT INTO effects (run, step) VALUES (%s, %s)", [run, step])
    return step


async def book_async(connection: psycopg.AsyncConnection[Any], run: str, step: int) -> int:
    await connection.execute("INSERT INTO effects (run, step) VALUES (%s, %s)", [run, step])
    return step


@app.workflow("order")
def order(ctx: taskq.Context, run: str) -> dict[str, Any]:
    done = []
    for step in range(1, 6):
        done.append(ctx.transaction(f"book {step}", book, run, step))
    for step in range(6, 11):
        done.append(ctx.step("compute", lambda: step, unique=False))
    parts = ctx.map("parts", "part", [{"run": run, "step": step} for step in range(11, 16)])
    one = ctx.call("sixteen", "part", {"run": run, "step": 16})
    ctx.sleep("rest", "0.01 seconds")
    with ctx.transaction("book 17") as statements:
        statements.execute(
            sql.SQL("INSERT INTO {} (run, step) VALUES (%s, 17)").format(sql.Identifier("effects")), [run]
        )
    approval = ctx.wait_for("approved", signal=f"approve {run}", timeout="1 hour")
    done.append(ctx.transaction("book 19", book, run, 19))
    done.append(ctx.transaction("book 20", book, run, 20))
    return {"done": done, "parts": parts, "one": one, "approval": approval}


@app.workflow("order async")
async def order_async(ctx: taskq.AsyncContext, run: str) -> dict[str, Any]:
    done = []
    for step in range(1, 6):
        done.append(await ctx.transaction(f"book {step}", book_async, run, step))
    for step in range(6, 11):
        done.append(await ctx.step("compute", lambda: step, unique=False))
    parts = await ctx.map("parts", "part", [{"run": run, "step": step} for step in range(11, 16)])
    one = await ctx.call("sixteen", "part", {"run": run, "step": 16})
    await ctx.sleep("rest", "0.01 seconds")
    async with ctx.transaction("book 17") as statements:
        await statements.execute("INSERT INTO effects (run, step) VALUES (%s, 17)", [run])
    approval = await ctx.wait_for("approved", signal=f"approve {run}", timeout="1 hour")
    done.append(await ctx.transaction("book 19", book_async, run, 19))
    done.append(await ctx.transaction("book 20", book_async, run, 20))
    return {"done": done, "parts": parts, "one": one, "approval": approval}


@app.task("part")
def part(body: dict[str, Any], task: taskq.Task) -> int:
    with app.connections.use() as connection, connection.transaction():
        connection.execute("INSERT INTO effects (run, step) VALUES (%s, %s)", [body["run"], body["step"]])
        task.complete(connection=connection, result=body["step"])
    return body["step"]
