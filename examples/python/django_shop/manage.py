"""A shop in Django 5.2 or 6: an order and what is to be done for it commit together.

pip install 'taskq-pg[binary,django]'
PGDATABASE=shop python manage.py migrate --run-syncdb      # which makes the extension, where the role may
PGDATABASE=shop python manage.py taskq_work                # beside runserver
PGDATABASE=shop python manage.py test
"""

import os
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(
    SECRET_KEY=os.environ.get("SECRET_KEY", "for development"),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="shop.views",
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "shop", "taskq_pg.django"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ.get("PGDATABASE", "shop"),
            "HOST": os.environ.get("PGHOST", ""),
            "PORT": os.environ.get("PGPORT", ""),
            "USER": os.environ.get("PGUSER", ""),
        }
    },
    TASKS={
        "default": {
            "BACKEND": "taskq_pg.django.backend.TaskqBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"lease": "1 minute", "insert": {"max_tries": 10}},
        }
    },
)

if __name__ == "__main__":
    django.setup()
    execute_from_command_line(sys.argv)
