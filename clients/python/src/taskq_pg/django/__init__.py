"""Django: a backend for its tasks framework (``backend``), and the command ``manage.py taskq_work``."""
