"""Settings and schedules of the code, and those that the database has.

What an app with a name has written is kept beside them, in a signal that has come: ``taskq.app NAME``. So each start
can tell what the code no longer has, and which version has written last.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from . import borrowed
from .bodies import dumps
from .keys import plain
from .operate import SETTINGS, set_action

log = logging.getLogger("taskq_pg")

Run = Callable[[LiteralString, Sequence[Any]], borrowed.Rows]

_SCHEDULE: LiteralString = """SELECT taskq.schedule(%s, %s, %s::text::jsonb, timezone => %s, overlap => %s,
                                                    backfill => %s, max_backfill => %s::int)"""
_SCHEDULED: LiteralString = """
    SELECT cron = %s AND task = %s::text::jsonb AND timezone = %s AND overlap = %s AND backfill = %s
           AND max_backfill IS NOT DISTINCT FROM %s::int
      FROM taskq.schedules WHERE name = %s"""
_READ: LiteralString = "SELECT result FROM taskq.tasks WHERE id = %s AND signal"
_FORGET: LiteralString = "SELECT taskq.delete_tasks(%s)"
_KEEP: LiteralString = """SELECT taskq.signal(%s, result => %s::text::jsonb, action => 'taskq.app',
                                              retention => '1000 years')"""
# Settings that come together.
_PAIR = {"rate_limit": "rate_period", "rate_period": "rate_limit"}


@dataclass
class Declared:
    """What an app declares."""

    name: str | None
    version: str | None
    actions: Mapping[str, Mapping[str, Any]]
    schedules: Mapping[str, Sequence[Any]]

    def write(self, run: Run, *, prune: bool) -> None:
        """Write all; with ``prune`` remove what this app has written and the code no longer has."""
        if prune and self.name is None:
            raise ValueError("name the app to prune: App(name=…) tells its settings and schedules from others")
        before = self._before(run)
        for action, settings in self.actions.items():
            run(*set_action(action, settings))
        for name, schedule in self.schedules.items():
            run(_SCHEDULE, [name, *schedule])
        gone_settings, gone_schedules = self._gone(before)
        if prune:
            for action, names in gone_settings.items():
                run("SELECT taskq.set_action(%s, clear => %s)", [action, names])
            for name in gone_schedules:
                run("SELECT taskq.unschedule(%s)", [name])
            gone_settings, gone_schedules = {}, []
        self._keep(run, gone_settings, gone_schedules)
        self._tell(gone_settings, gone_schedules)

    def begin(self, run: Run) -> None:
        """Write what the database lacks, and the rest if this version is higher than that which has written it."""
        before = self._before(run)
        if before and _number(self.version) > _number(before.get("version")):
            self.write(run, prune=False)
            return
        others: list[str] = []
        for action, settings in self.actions.items():
            if lacking := self._lacking(run, action, settings, others):
                run(*set_action(action, lacking))
        for name, schedule in self.schedules.items():
            cron, *rest = schedule
            rows = run(_SCHEDULED, [cron, *rest, name])
            if not rows:
                run(_SCHEDULE, [name, *schedule])
            elif rows[0][0] is not True:
                others.append(f'schedule "{name}"')
        if others:
            log.warning("the database has others than the code, setup writes them: %s", "; ".join(others))
        if not before and (self.actions or self.schedules):
            self._keep(run, {}, [], is_first=True)
        self._tell(*self._gone(before))

    def _lacking(self, run: Run, action: str, settings: Mapping[str, Any], others: list[str]) -> dict[str, Any]:
        if not settings:
            return {}
        kinds = {name: SETTINGS[name].partition("%s")[2] for name in settings}
        # What is as it is without a setting, which is not NULL for all.
        asked = [
            f"""{name} IS NULL OR {name}::text IN ('false', 'retry'),
                {name} IS NOT DISTINCT FROM %s{kinds[name]}, {name}::text"""
            for name in SETTINGS
            if name in settings
        ]
        # Of names of ours alone.
        query = f"SELECT {', '.join(asked)} FROM taskq.actions WHERE action = %s"
        ordered = {name: settings[name] for name in SETTINGS if name in settings}
        values = [dumps(value) if isinstance(value, dict) else value for value in plain(ordered).values()]
        rows = run(query, [*values, action])  # pyright: ignore[reportArgumentType]
        if not rows:
            return dict(settings)
        lacking: dict[str, Any] = {}
        for n, name in enumerate(ordered):
            lacks, same, stored = rows[0][3 * n : 3 * n + 3]
            if same:
                continue
            if lacks:
                pair = _PAIR.get(name, name)
                lacking |= {name: settings[name]} | ({pair: settings[pair]} if pair in settings else {})
            else:
                others.append(f"{name} of {action} is {stored}, here {settings[name]}")
        return lacking

    def _before(self, run: Run) -> dict[str, Any]:
        rows = [] if self.name is None else run(_READ, [self._id])
        return dict(rows[0][0] or {}) if rows else {}

    def _keep(
        self, run: Run, settings: Mapping[str, Sequence[str]], schedules: Sequence[str], *, is_first: bool = False
    ) -> None:
        """Keep what this app has written, and what it has left there. Of several that are first, one is."""
        if self.name is None:
            return
        actions = {action: sorted({*mine, *settings.get(action, ())}) for action, mine in self.actions.items()}
        kept = {
            "version": self.version,
            "settings": {**settings, **actions},
            "schedules": sorted({*self.schedules, *schedules}),
        }
        if not is_first:
            run(_FORGET, [[self._id]])
        run(_KEEP, [self._id, json.dumps(kept)])

    def _gone(self, before: Mapping[str, Any]) -> tuple[dict[str, list[str]], list[str]]:
        settings = {
            action: names
            for action, had in before.get("settings", {}).items()
            if (names := [name for name in had if name not in self.actions.get(action, {})])
        }
        return settings, [name for name in before.get("schedules", ()) if name not in self.schedules]

    def _tell(self, settings: Mapping[str, Sequence[str]], schedules: Sequence[str]) -> None:
        gone = [f"{', '.join(names)} of {action}" for action, names in settings.items()]
        gone += [f'schedule "{name}"' for name in schedules]
        if gone:
            log.warning("the code no longer has, and setup --prune removes: %s", "; ".join(gone))

    @property
    def _id(self) -> str:
        return f"taskq.app {self.name}"


def _number(version: str | None) -> tuple[int, ...]:
    return () if version is None else tuple(int(part) for part in version.split("."))


def checked(version: str | int | None) -> str | None:
    """Return a version as text; ``ValueError`` if it is no number, and no dotted numbers."""
    text = None if version is None else str(version)
    try:
        _number(text)
    except ValueError:
        raise ValueError(f'the version "{version}" is no integer, and no dotted numbers such as "1.10"') from None
    return text
