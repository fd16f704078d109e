"""What docs/clients.md says of psycopg 3 and SQLAlchemy, statement by statement. PGDATABASE says where."""

import json
import math
import os
from datetime import timedelta
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import create_engine, text

db = psycopg.connect(autocommit=True)


def one(query, *arguments):
    return db.execute(query, arguments).fetchone()


# JSON arguments: Jsonb, or a text where the function takes nothing else.
assert one("SELECT taskq.insert_tasks(%s)", Jsonb([{"id": "a", "action": "x"}])) == ("a",)
assert one("SELECT taskq.insert_tasks(%s::jsonb)", json.dumps([{"id": "b", "action": "x"}])) == ("b",)
# Lists are arrays, a timedelta is an interval, a float is a double precision, no cast is needed.
assert one("SELECT taskq.add_dependencies(%s, %s)", ["a"], ["b"]) == (1,)
task_id, token = one("SELECT task_id, token FROM taskq.own_tasks(%s, 1, %s, %s)", "ann", ["x"], timedelta(minutes=1))
assert task_id == "a" and isinstance(token, UUID)
one("SELECT taskq.report_status(%s, %s, progress => %s, checkpoint => %s)", task_id, token, 0.1, Jsonb({"n": 1}))
assert math.isclose(one("SELECT progress FROM taskq.tasks WHERE id = 'a'")[0], 0.1, rel_tol=1e-15), "not a float4"
assert one("SELECT owned FROM taskq.extend_tasks_ownership('ann', %s, %s, '1 minute')", ["a"], [token]) == (True,)
assert one("SELECT taskq.return_task(%s, %s, %s, result => %s)", "a", token, "completed", Jsonb([1])) == ("completed",)
# The SQLSTATE is there.
try:
    one("SELECT taskq.return_task('a', %s)", token)
except psycopg.Error as error:
    assert error.sqlstate == "TQ001"
# A CALL needs autocommit.
assert one("CALL taskq.wait_for_tasks(%s, '0', NULL)", ["a"]) == (1,)
with psycopg.connect() as block:
    try:
        block.execute("CALL taskq.wait_for_tasks('{a}', '0', NULL)")
        raise AssertionError("a CALL that waits inside a transaction block")
    except psycopg.Error as error:
        assert error.sqlstate == "2D000"
    block.rollback()

# SQLAlchemy reads a colon as its own: CAST(), not ::.
engine = create_engine(f"postgresql+psycopg:///{os.environ['PGDATABASE']}")
with engine.begin() as connection:
    query = text("SELECT * FROM taskq.insert_tasks(CAST(:tasks AS jsonb))")
    assert connection.scalars(query, {"tasks": json.dumps([{"id": "c", "action": "x"}])}).all() == ["c"]
with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
    assert connection.execute(text("CALL taskq.wait_for_tasks('{a}', '0', NULL)")).scalar() == 1
print("fine")
