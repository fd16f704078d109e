"""Settings of the project; the database is that of the test."""

import os

import django
import psycopg

where = psycopg.conninfo.conninfo_to_dict(os.environ["TEST_CONNINFO"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "shop",
    "taskq_pg.django",
]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
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
