"""Durations, for the worker and for PostgreSQL."""

from datetime import timedelta

import pytest

from taskq_pg.durations import interval, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 minute", 60),
        ("90 seconds", 90),
        ("90s", 90),
        ("1 hour 30 min", 5400),
        ("0.5 s", 0.5),
        ("2 days", 172800),
        (timedelta(minutes=2), 120),
    ],
)
def test_seconds(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "1", "minute", "1 month", "1 minute and a bit", "-1 minute"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        seconds(text)


def test_a_timedelta_is_exact_in_postgresql(taskq_app) -> None:
    for delta in (timedelta(days=2, hours=3, microseconds=1), timedelta(seconds=-1.5), timedelta(0)):
        assert taskq_app.query("SELECT %s::text::interval", [interval(delta)])[0][0] == delta
