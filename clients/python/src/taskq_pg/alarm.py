"""Signals, told at once: also while the main thread is in C code, where Python calls no handler of a signal."""

from __future__ import annotations

import signal as signals
import socket
import threading
from collections.abc import Callable


class Alarm:
    """Has a thread call a function once for each signal of some kinds. Made, rung and ended by the main thread."""

    def __init__(self, numbers: tuple[int, ...], call: Callable[[], None]) -> None:
        """Begin to listen: Python writes the number of each signal into a socket as it comes."""
        self._numbers = numbers
        self._call = call
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before = signals.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._listen, name="taskq signals", daemon=True).start()

    def ring(self, number: int) -> None:
        """Tell of a signal whose handler is called, unless Python has."""
        current = signals.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if current != self._writer.fileno():
            # An event loop that handles other signals has had them written elsewhere.
            signals.set_wakeup_fd(current)
            self._writer.send(bytes([number]))

    def end(self) -> None:
        """Listen no more."""
        current = signals.set_wakeup_fd(self._before)
        if current != self._writer.fileno():
            signals.set_wakeup_fd(current)
        # A forked process may have copies of these sockets.
        self._writer.shutdown(socket.SHUT_RDWR)
        self._writer.close()

    def _listen(self) -> None:
        with self._reader:
            while told := self._reader.recv(1):
                if told[0] in self._numbers:
                    self._call()
