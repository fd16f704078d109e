"""How values look: numbers, times, names, JSON. Whatever is shown is escaped."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import jinja2
from markupsafe import Markup, escape

from ..terminal import shown

_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"
STATES = ("ready", "in-progress", "blocked", "scheduled", "completed", "aborted")
CAUSES = ("returned", "tries", "timeout", "expired", "cancelled", "dependency", "merged", "skipped")
# Fields of forms that are written by `coded`.
CODED = ("id", "step")
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def number(value: Any) -> str:
    """Write a number with separators; nothing for none and for zero."""
    if value is None or value == 0:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def span(value: Any) -> str:
    """Write a duration in one unit."""
    if value is None:
        return ""
    if not isinstance(value, timedelta):
        return shown(value)
    seconds = value.total_seconds()
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            many = seconds / size
            return f"{many:.1f} {unit}" if abs(many) < 10 and round(many, 1) != round(many) else f"{many:.0f} {unit}"
    if abs(seconds) >= 1 or seconds == 0:
        return f"{seconds:.1f} s" if abs(seconds) < 10 and seconds else f"{seconds:.0f} s"
    return f"{seconds * 1000:.0f} ms"


def when(value: Any) -> Markup:
    """Write a time as seen from now; the time itself when one points at it."""
    if value is None:
        return Markup("")
    if not isinstance(value, datetime):
        return escape(shown(value))
    ago = datetime.now(UTC) - value
    text = (
        f"{span(ago)} ago"
        if ago >= timedelta(seconds=1)
        else f"in {span(-ago)}"
        if ago < -timedelta(seconds=1)
        else "now"
    )
    absolute = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(value.isoformat(), absolute, text)


def clock(value: Any, zone: str) -> str:
    """Write a time as the clocks of its schedule show it."""
    try:
        return str(value.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M:%S"))
    except (ValueError, LookupError, OSError):
        return f"{value:%a %Y-%m-%d %H:%M:%S} UTC"


def name(value: Any, most: int = 0) -> str:
    """Show what a name has that cannot be seen; a long one loses its middle, where ``most`` says so."""
    text = shown(value if value is not None else "")
    if most and len(text) > most:
        return f"{text[: most * 2 // 3]}…{text[-(most // 3) :]}"
    return text


def lines(value: Any, most: int = 20_000) -> str:
    """Show a text of several lines, JSON with its structure."""
    text = "" if value is None else str(value)
    if len(text) > most:
        return "\n".join(map(shown, text[:most].split("\n"))) + f"\n… of {len(text):,} characters"
    if text[:1] in ("{", "["):
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return "\n".join(map(shown, text.split("\n")))


def coded(value: Any) -> str:
    """Write a name for a form, whose browser would change the ends of lines in it; `unquote` reads it."""
    return "".join(sign if sign.isprintable() and sign != "%" else quote(sign) for sign in str(value))


def told(status: str | None) -> str:
    """Return the line that tells what it was: the first; of a trace of Python the last."""
    lines = [line for line in (status or "").split("\n") if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback ") else lines[0]


def sql(value: Any) -> str:
    """Write a text as SQL does."""
    text = str(value)
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else "U&" + _coded(text)


def _coded(text: str) -> str:
    parts = (
        "''" if sign == "'" else "\\\\" if sign == "\\" else sign if sign.isprintable() else f"\\+{ord(sign):06x}"
        for sign in text
    )
    return "'" + "".join(parts) + "'"


def environment() -> jinja2.Environment:
    """Make what renders the templates of this folder."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number, span=span, clock=clock, told=told, when=when, name=name, lines=lines, coded=coded, sql=sql
    )
    made.globals.update(STATES=STATES, CAUSES=CAUSES)
    return made
