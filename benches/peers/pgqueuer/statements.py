"""The statements of pgqueuer, as its own builders make them for a worker without limits."""

import sys
from datetime import timedelta
from uuid import uuid4

from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder

folder = sys.argv[1]
with open(f"{folder}/schema.sql", "w") as file:
    file.write(QueryBuilderEnvironment().build_install_query())

builder = QueryQueueBuilder()
fetch = builder.build_dequeue_query(
    batch_size=1,
    entrypoints=["work"],
    concurrency_limits=[0],
    queue_manager_id=uuid4(),
    global_concurrency_limit=None,
    heartbeat_timeout=timedelta(seconds=30),
).sql

# What was fetched has to reach the client in one row.
head, last, tail = fetch.rpartition("SELECT * FROM claimed")
assert last, fetch
in_one_row = head + "SELECT array_agg(id) AS ids FROM (" + last + tail.rstrip("; \n") + ") AS jobs"

statements = {
    "fetch": fetch,
    "fetch_in_one_row": in_one_row,
    "log": builder.build_log_job_query(),
    "enqueue": builder.build_enqueue_query(),
}
for name, text in statements.items():
    with open(f"{folder}/statements/{name}.sql", "w") as file:
        file.write(text + "\n")
