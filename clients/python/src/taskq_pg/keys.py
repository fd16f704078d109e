"""The keys of a task by name, as `insert` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Literal, NotRequired, TypedDict

from .durations import Duration, interval

Condition = Literal["completed", "settled", "aborted"]
OnConflict = Literal["error", "skip"]
IfMissing = Literal["error", "ignore"]


class Dependency(TypedDict):
    """A task to run after, or before, with the way in which it must have ended."""

    id: str
    condition: NotRequired[Condition]


class SharedKeys(TypedDict, total=False):
    """What many tasks may share. Durations are a ``timedelta`` or a text; a missing key is the queue's default."""

    priority: int
    max_tries: int
    lease: Duration
    not_before: datetime | str
    delay: Duration
    depends_on: Sequence[str | Dependency]
    to_signal_after: Sequence[str | Dependency]
    spontaneous: bool
    signal: bool
    num_required: int
    expires_at: datetime | str
    expires_in: Duration
    max_run_time: Duration
    post_result: bool
    group_id: str
    workgroup: str
    merge_key: str
    unique_by: Any
    seed: bool
    backoff: Mapping[str, Any]
    retention: Duration | Mapping[str, Any]
    metadata: Mapping[str, Any]


class TaskKeys(SharedKeys, total=False):
    """The keys of one task."""

    id: str


class _Insertion(TypedDict, total=False):
    connection: Any
    on_conflict: OnConflict
    if_missing: IfMissing


class OneKeys(TaskKeys, _Insertion, total=False):
    """What the insertion of one task takes by name."""


class ManyKeys(SharedKeys, _Insertion, total=False):
    """What the insertion of many tasks takes by name."""

    ids: Sequence[str | None] | None


class ActionSettings(TypedDict, total=False):
    """Settings of an action, for all workers together: the arguments of ``taskq.set_action``."""

    max_tries: int
    backoff: Mapping[str, Any]
    max_concurrency: int
    rate_limit: int
    rate_period: Duration
    retention: Duration
    retention_aborted: Duration
    notify: bool
    on_timeout: Literal["retry", "abort"]
    max_timeouts: int
    fair: bool
    max_per_group: int
    expires_in: Duration
    max_run_time: Duration


_DURATIONS = {
    "lease", "delay", "expires_in", "max_run_time", "rate_period", "retention", "retention_aborted",
    "initial", "max", "period", "delay_children", "delay_workgroup", "retry_after",
}  # fmt: skip
_TIMES = {"not_before", "expires_at"}


def plain(value: Any) -> Any:
    """Return keys, or the value of one, as JSON has them: durations and times as text, everything else as it is."""
    if isinstance(value, timedelta):
        return interval(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: one if key in ("body", "metadata") else _plain(key, one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value


def _plain(key: str, value: Any) -> Any:
    if key in _DURATIONS and isinstance(value, (int, float)):
        interval(value)  # type: ignore[arg-type]  # which refuses it
    if key in _TIMES and isinstance(value, date) and (not isinstance(value, datetime) or value.tzinfo is None):
        raise ValueError(f"{key} is a time without a zone: give it one, as in datetime.now(UTC), or value.astimezone()")
    return plain(value)
