"""The console alone: a server of its own, that lets in who has its address."""

from __future__ import annotations

import secrets
from collections.abc import Collection

import uvicorn

from .site import console


def serve(
    conninfo: str,
    *,
    host: str,
    port: int,
    title: str | None = None,
    hide_bodies: bool | Collection[str] = False,
    token: str | None = None,
) -> None:
    """Serve until a signal. The token stands in the address that is printed, and in no log."""
    token = token or secrets.token_urlsafe(24)
    app = console(conninfo, hide_bodies=hide_bodies, token=token, title=title)
    config = uvicorn.Config(app, host=host, port=port, access_log=False, log_level="warning", server_header=False)
    listening = config.bind_socket()
    # A browser that is quick waits, and is not refused.
    listening.listen()
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{listening.getsockname()[1]}/?token={token}", flush=True)
    uvicorn.Server(config).run(sockets=[listening])
