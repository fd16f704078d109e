"""Durations: a ``timedelta``, or a text that PostgreSQL reads as an interval."""

from __future__ import annotations

import re
from datetime import timedelta

Duration = str | timedelta

_UNITS = {
    "millisecond": 0.001,
    "msec": 0.001,
    "ms": 0.001,
    "second": 1.0,
    "sec": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "m": 60.0,
    "hour": 3600.0,
    "h": 3600.0,
    "day": 86400.0,
    "d": 86400.0,
}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def interval(duration: Duration) -> str:
    """Return the duration as text for PostgreSQL."""
    if isinstance(duration, timedelta):
        # Exact to the microsecond, and never rounded by a float.
        return f"{duration.days} days {duration.seconds} seconds {duration.microseconds} microseconds"
    if not isinstance(duration, str):
        raise TypeError(f'{duration!r} is no duration: write "{duration} seconds", or a timedelta')
    return duration


def seconds(duration: Duration) -> float:
    """Return the duration in seconds, for what the worker itself times: the lease and the grace.

    A text is a sum of amounts with units up to days, like ``"1 hour 30 minutes"``. The rest of PostgreSQL's
    syntax is for the server.
    """
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    interval(duration)
    total, end = 0.0, 0
    while match := _TEXT.match(duration, end):
        unit = match[2].lower()
        unit = unit if unit in _UNITS or len(unit) == 2 else unit.removesuffix("s")
        if unit not in _UNITS:
            break
        total += float(match[1]) * _UNITS[unit]
        end = match.end()
    if end == 0 or end != len(duration):
        raise ValueError(f'"{duration}" is no duration: write "90 seconds", "1 hour 30 minutes" or a timedelta')
    return total
