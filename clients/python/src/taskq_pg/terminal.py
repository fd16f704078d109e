"""Text of others on a terminal: names and statuses are whatever a producer has inserted."""

from __future__ import annotations


def shown(value: object) -> str:
    """Escape what a terminal would obey rather than show: control characters, line ends, changes of direction."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(value))


def shown_lines(text: str) -> str:
    """Escape the same in a message of several lines, whose line ends stay."""
    return "\n".join(map(shown, text.split("\n")))
