"""Hands out taskq's metrics to Prometheus (psycopg 3, nothing else).

    PGHOST=... PGDATABASE=... PGUSER=... python exporter.py [PORT]      # 9187 if none is given; 0: any

GET /metrics gives what taskq.metrics() says, as OpenMetrics. The user needs to be a monitor: `SELECT
taskq.grant_monitor('prometheus')`. It listens on this machine only (TASKQ_EXPORTER_HOST= for another address), keeps one
connection, and opens it again after a failure; while there is none it answers 503, so that the alert on `up` fires.
"""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg

HOST = os.environ.get("TASKQ_EXPORTER_HOST", "127.0.0.1")
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 9187
TIMEOUT = 10  # seconds that one look may take: less than Prometheus' scrape_timeout

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Metrics:
    """One connection, for one look at a time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.connection = None

    def read(self):
        with self.lock:
            try:
                if self.connection is None:
                    self.connection = psycopg.connect(
                        autocommit=True,
                        connect_timeout=TIMEOUT,
                        application_name="taskq exporter",
                        options=f"-c statement_timeout={TIMEOUT}s",
                    )
                return self.connection.execute("SELECT taskq.metrics()").fetchone()[0]
            except psycopg.Error:
                if self.connection is not None:
                    self.connection.close()
                self.connection = None
                raise


class Handler(BaseHTTPRequestHandler):
    metrics = Metrics()

    def do_GET(self):
        if self.path.split("?")[0] != "/metrics":
            return self.answer(404, "text/plain; charset=utf-8", "Look at /metrics.\n")
        try:
            text = self.metrics.read()
        except psycopg.Error as error:
            return self.answer(503, "text/plain; charset=utf-8", f"{error}\n")
        self.answer(200, OPEN_METRICS, text)

    def answer(self, status, kind, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Prometheus writes down what it scrapes."""


if __name__ == "__main__":
    server = ThreadingHTTPServer((HOST, PORT), Handler)
    print(f"http://{HOST}:{server.server_port}/metrics", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
