"""Handlers of signals that forked processes do not inherit.

A process that a task's handler forks, with ``multiprocessing`` for one, is no worker: a signal is to end it as it ends
any process, at any time. So it has the handlers from before; and since a signal that came before that would be the
worker's for it, none comes while a process is forked.
"""

from __future__ import annotations

import contextlib
import os
import signal as signals
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_before: dict[int, Any] = {}
_this_thread = threading.local()


@contextlib.contextmanager
def handled(numbers: tuple[int, ...], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have signals handled, in the main thread, until the end of the block."""
    outer = dict(_before)
    _before.update({number: signals.signal(number, handler) for number in numbers})
    try:
        yield
    finally:
        _restore()
        _before.update(outer)


def end_child(process: int, error: BaseException | None) -> None:
    """End this process, as a program ends, if it was forked by a handler that has returned or raised in it."""
    if os.getpid() == process:
        return
    code: Any = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
    elif error is not None:
        traceback.print_exception(error)
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _restore() -> None:
    while _before:
        number, handler = _before.popitem()
        # What a library in C has set is not told, and cannot be set again.
        signals.signal(number, signals.SIG_DFL if handler is None else handler)


def _block() -> None:
    _this_thread.mask = signals.pthread_sigmask(signals.SIG_BLOCK, list(_before))


def _unblock() -> None:
    signals.pthread_sigmask(signals.SIG_SETMASK, _this_thread.mask)


def _forked() -> None:
    if _before:
        _restore()
        signals.set_wakeup_fd(-1)
    _unblock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_forked)
