"""The console: look, find and act in a browser: ``console()`` to be mounted, or ``taskq-pg console``."""

from __future__ import annotations

from .site import console

__all__ = ["console"]
