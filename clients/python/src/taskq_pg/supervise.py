"""Several processes of one worker, and a port that tells whether a worker is well."""

from __future__ import annotations

import logging
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

log = logging.getLogger("taskq_pg")

# What dies sooner than this after its beginning is begun anew only then.
_SHORTEST_LIFE = 1.0


def serve_health(port: int, is_healthy: Callable[[], bool]) -> ThreadingHTTPServer:
    """Answer ``GET /`` with 200 or 503, in a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            healthy = is_healthy()
            text = b"ok\n" if healthy else b"it does not claim or extend\n"
            self.send_response(200 if healthy else 503)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing of each request."""

    server = ThreadingHTTPServer(("", port), Handler)
    threading.Thread(target=server.serve_forever, name="taskq health", daemon=True).start()
    return server


def supervise(commands: Sequence[Sequence[str]], *, ends: bool = False, reload: Path | None = None) -> int:
    """Run the commands until SIGTERM or SIGINT, which they get as well; one that dies is begun anew.

    With ``ends`` one that ends with 0 stays so. With ``reload`` all are begun anew when a Python file below that folder
    has changed.
    """
    stopping = 0
    children: dict[int, subprocess.Popen[bytes]] = {}
    began: dict[int, float] = {}

    def stop(number: int, _: object) -> None:
        nonlocal stopping
        stopping += 1
        for child in list(children.values()):
            child.send_signal(signals.SIGTERM)

    before = {number: signals.signal(number, stop) for number in (signals.SIGTERM, signals.SIGINT)}
    seen = _changed(reload)
    wanted = set(range(len(commands)))
    try:
        while wanted if not stopping else any(child.poll() is None for child in children.values()):
            for n in list(wanted):
                child = children.get(n)
                if child is not None and (code := child.poll()) is not None:
                    if ends and code == 0:
                        wanted.discard(n)
                        continue
                    if not stopping:
                        log.error("process %d of %d has ended with %d, and is begun anew", n + 1, len(commands), code)
                if not stopping and (child is None or child.poll() is not None):
                    time.sleep(max(0.0, began.get(n, 0.0) + _SHORTEST_LIFE - time.monotonic()))
                    began[n] = time.monotonic()
                    children[n] = subprocess.Popen([sys.executable, *commands[n]])  # noqa: S603  # our own command
            if reload is not None and not stopping and (now := _changed(reload)) != seen:
                seen = now
                log.info("the code has changed")
                for child in children.values():
                    child.send_signal(signals.SIGTERM)
                for child in children.values():
                    child.wait()
                children.clear()
            time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signals.signal(number, handler)
    return max((child.returncode for child in children.values()), default=0)


def _changed(folder: Path | None) -> float:
    if folder is None:
        return 0.0
    files = (file for file in folder.rglob("*.py") if not any(part.startswith(".") for part in file.parts))
    return max((file.stat().st_mtime for file in files), default=0.0)
