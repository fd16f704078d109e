"""The statements of procrastinate, from where its client takes them."""

import sys

from procrastinate import schema, sql

folder = sys.argv[1]
with open(f"{folder}/schema.sql", "w") as file:
    file.write(schema.SchemaManager.get_schema())
for name in ("defer_jobs", "fetch_job", "finish_job"):
    with open(f"{folder}/statements/{name}.sql", "w") as file:
        file.write(sql.queries[name] + "\n")
