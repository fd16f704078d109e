"""Settings of the project; the database is that of the test."""

import os

import psycopg

where = psycopg.conninfo.conninfo_to_dict(os.environ["TEST_CONNINFO"])

INSTALLED_APPS = ["shop", "taskq_pg.django"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": where["dbname"],
        "USER": where.get("user", ""),
        "HOST": where.get("host", ""),
        "PORT": where.get("port", ""),
    }
}
TASKS = {
    "default": {
        "BACKEND": "taskq_pg.django.backend.TaskqBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"lease": "2 minutes", "insert": {"max_tries": 2, "backoff": {"kind": "fixed", "initial": "0 s"}}},
    }
}
USE_TZ = True
SECRET_KEY = "for tests"
