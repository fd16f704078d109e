"""Bodies and results: Python values to JSON, and JSON to what an annotation asks for.

A string is stored as it is, anything else as JSON: the contract of the queue. Reading goes by the annotation.
Without one the value is what the JSON says, or the text where it is no JSON.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import sys
import types
import typing
from collections import abc
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from .errors import BodyError

JSON = dict[str, Any] | list[Any] | str | int | float | bool | None

_FROM_TEXT: dict[type, Any] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}


# PostgreSQL takes no message of a gigabyte: it hangs up, and so it would each time that the call is made again.
LONGEST = 1_000_000_000


def bounded(text: str, what: str = "it") -> str:
    """Return JSON text; ``ValueError`` if it is too large to be sent. ASCII as it is, each character is a byte."""
    if len(text) > LONGEST:
        raise ValueError(f"{what} is too large")
    return text


def dumps(value: Any) -> str:
    """Return the value as JSON text. ``TypeError`` or ``ValueError`` if it is none."""
    return json.dumps(value, default=_plain, allow_nan=False)


def dumps_again(value: Any) -> str:
    """Return JSON text that a model of pydantic is read from again: without its computed fields."""
    return json.dumps(value, default=functools.partial(_plain, again=True), allow_nan=False)


def body_text(value: Any) -> str | None:
    """Return what is stored as the body: a text as it is, unless it would be read as JSON, None as none, else JSON."""
    if value is None or (isinstance(value, str) and not isinstance(value, enum.Enum) and not _reads_as_json(value)):
        return value
    return dumps_again(value)


def _reads_as_json(text: str) -> bool:
    try:
        # Also a number with more digits than Python reads.
        json.loads(text, parse_int=str, parse_constant=_refuse)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _plain(value: Any, again: bool = False) -> Any:
    """Turn what ``json`` does not know into what it knows."""
    if is_pydantic(type(value)):
        return value.model_dump(mode="json", round_trip=again)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, PurePath)):
        return str(value)
    if isinstance(value, (set, frozenset, abc.Mapping)):
        return dict(value) if isinstance(value, abc.Mapping) else list(value)
    if isinstance(value, timedelta):
        raise TypeError("timedelta is no JSON, give its total_seconds()")
    raise TypeError(f"{type(value).__name__} is no JSON")


@dataclasses.dataclass(frozen=True)
class Unreadable:
    """In the place of JSON that Python cannot load: its numbers are too long for it, or it is nested too deeply."""

    problem: str


def load_or_say(text: str | bytes) -> Any:
    """Load JSON of the queue; what cannot be loaded concerns the task that has it, and no other row of the call."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unreadable(str(error))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def read_json(text: str | bytes) -> Any:
    """Load JSON, and no more than that: ``NaN`` and ``Infinity`` are none."""
    return json.loads(text, parse_constant=_refuse)


def read_body(text: str | None, annotation: Any = Any) -> Any:
    """Return the stored text of a body as what the annotation asks for; ``BodyError`` if it does not fit."""
    if text is None:
        return convert(None, annotation)
    try:
        value = read_json(text)
    except (ValueError, RecursionError) as error:
        problem = BodyError(f"the body is no JSON: {error}")
    else:
        try:
            return convert(value, annotation)
        except BodyError as error:
            problem = error
    # What is no JSON is a text, and so is JSON of another kind to what takes a text.
    try:
        return convert(text, annotation)
    except BodyError:
        raise problem from None


def unalias(annotation: Any) -> Any:
    """Return what an alias, ``type Uid = int`` or ``type Pair[T] = tuple[T, T]``, stands for."""
    # By name: typing has the class from Python 3.12 on, and typing_extensions one of its own.
    while type(alias := get_origin(annotation) or annotation).__name__ == "TypeAliasType":
        given = _given(alias.__type_params__, get_args(annotation))
        annotation = alias.__value__
        if isinstance(annotation, typing.TypeVar):
            [annotation] = given.get(annotation, [Any])
        elif given and (parameters := getattr(annotation, "__parameters__", ())):
            annotation = annotation[tuple(one for parameter in parameters for one in given.get(parameter, [Any]))]
    return annotation


def _given(parameters: abc.Sequence[Any], arguments: abc.Sequence[Any]) -> dict[Any, abc.Sequence[Any]]:
    """Tell what stands for each parameter: of one like ``*Ts`` all that the others leave."""
    given: dict[Any, abc.Sequence[Any]] = {}
    many = max(0, len(arguments) - len(parameters) + 1)
    for parameter in parameters if arguments else ():
        is_many = type(parameter).__name__ == "TypeVarTuple"
        taken = arguments[:many] if is_many else arguments[:1] or [Any]
        given[parameter], arguments = taken, arguments[len(taken) :]
    return given


def convert(value: Any, annotation: Any, where: str = "the body") -> Any:
    """Return a JSON value as what the annotation asks for; ``BodyError`` tells which part of it does not fit."""
    annotation = unalias(annotation)
    if annotation in (Any, object, JSON) or isinstance(annotation, typing.TypeVar):
        return value
    if annotation is None or annotation is type(None):
        return _require(value is None, value, where, "null", value)
    if is_pydantic(annotation):
        return _pydantic(value, annotation, where)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass(value, annotation, where)
    if _is_typed_dict(annotation):
        return _typed_dict(value, annotation, where)
    origin, arguments = get_origin(annotation), get_args(annotation)
    # The last one by name: typing has it from Python 3.13 on.
    only = origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final)
    if only or getattr(origin, "_name", None) == "ReadOnly":
        return convert(value, arguments[0], where)
    if origin in (Union, types.UnionType):
        return _union(value, arguments, where)
    if origin is Literal:
        if any(value == one and type(value) is type(one) for one in arguments):
            return value
        raise BodyError(f"{where} is none of {', '.join(map(repr, arguments))}")
    if isinstance(annotation, typing.NewType):
        return convert(value, annotation.__supertype__, where)
    return _container(value, annotation, origin, arguments, where)


def _container(value: Any, annotation: Any, origin: Any, arguments: tuple[Any, ...], where: str) -> Any:
    kind = origin or annotation
    if kind in (list, set, frozenset, tuple, abc.Sequence, abc.Iterable, abc.Collection):
        _require(isinstance(value, list), value, where, "an array")
        return _array(value, kind, arguments, where)
    if kind in (dict, abc.Mapping, abc.MutableMapping):
        _require(isinstance(value, dict), value, where, "an object")
        name, item = arguments if len(arguments) == 2 else (Any, Any)
        return {_key(key, name, where): convert(one, item, f"{where}[…]") for key, one in value.items()}
    return _scalar(value, annotation, where)


def _key(key: str, annotation: Any, where: str) -> Any:
    """Return the key of an object, a text always in JSON, as what the annotation asks for."""
    where = f"a key of {where}"
    try:
        return convert(key, annotation, where)
    except BodyError:
        try:
            return convert(json.loads(key), annotation, where)
        except ValueError:
            pass
        raise


def _array(value: list[Any], kind: Any, arguments: tuple[Any, ...], where: str) -> Any:
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        _require(len(value) == len(arguments), value, where, f"an array of {len(arguments)}")
        kinds: abc.Iterable[Any] = arguments
    else:
        kinds = [arguments[0] if arguments else Any] * len(value)
    items = [convert(one, k, f"{where}[{n}]") for n, (one, k) in enumerate(zip(value, kinds, strict=True))]
    try:
        return kind(items) if kind in (tuple, set, frozenset) else items
    except TypeError as error:
        raise BodyError(f"{where} is no {kind.__name__}: {error}") from None


def _scalar(value: Any, annotation: Any, where: str) -> Any:
    if not isinstance(annotation, type):
        raise BodyError(f"{where} cannot be read as {annotation!r}")
    if issubclass(annotation, enum.Enum):
        try:
            return annotation(value)
        except ValueError:
            raise BodyError(f"{where} is none of {[e.value for e in annotation]}") from None
    if annotation is float:
        _require(isinstance(value, (int, float)) and not isinstance(value, bool), value, where, "a number")
        try:
            return float(value)
        except OverflowError:
            raise BodyError(f"{where} is too large for a float") from None
    if annotation is int:
        return _require(isinstance(value, int) and not isinstance(value, bool), value, where, "an integer", value)
    if annotation in (str, bool):
        return _require(isinstance(value, annotation), value, where, annotation.__name__, value)
    if annotation in _FROM_TEXT:
        try:
            return _FROM_TEXT[annotation](value if annotation is not Decimal else str(value))
        except (ValueError, TypeError, ArithmeticError, AttributeError):
            raise BodyError(f"{where} is {_kind(value)}, not {annotation.__name__}") from None
    if issubclass(annotation, PurePath):
        return annotation(_require(isinstance(value, str), value, where, "a path", value))
    raise BodyError(f"{where} cannot be read as {annotation.__name__}")


def _union(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    problems = []
    # First what knows all keys of an object: a dataclass ignores those that it does not know.
    for kind in sorted(map(unalias, kinds), key=lambda kind: _unknown(value, kind)):
        try:
            return convert(value, kind, where)
        except BodyError as error:
            problems.append(str(error))
    raise BodyError("; ".join(dict.fromkeys(problems)))


def _unknown(value: Any, kind: Any) -> int:
    """Count the keys of an object that the class does not know."""
    if not isinstance(value, dict) or not isinstance(kind, type):
        return 0
    if dataclasses.is_dataclass(kind):
        return len(value.keys() - {field.name for field in dataclasses.fields(kind)})
    return len(value.keys() - kind.__annotations__.keys()) if _is_typed_dict(kind) else 0


def _dataclass(value: Any, annotation: type, where: str) -> Any:
    """A key that the class does not know is ignored: the inserting side may be newer than the worker."""
    _require(isinstance(value, dict), value, where, f"an object ({annotation.__name__})")
    kinds = typing.get_type_hints(annotation, include_extras=True)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(annotation):
        if not field.init:
            continue
        if field.name in value:
            given[field.name] = convert(value[field.name], kinds[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise BodyError(f"{where} lacks {field.name!r}")
    try:
        return annotation(**given)
    except (TypeError, ValueError) as error:
        # A check of the class itself, in __post_init__.
        raise BodyError(f"{where}: {error}") from error


def _is_typed_dict(kind: Any) -> bool:
    # By name: typing_extensions has a class of its own where it adds something to that of typing.
    return type(kind).__name__ == "_TypedDictMeta"


def _typed_dict(value: Any, annotation: Any, where: str) -> Any:
    _require(isinstance(value, dict), value, where, f"an object ({annotation.__name__})")
    if missing := sorted(annotation.__required_keys__ - value.keys()):
        raise BodyError(f"{where} lacks {', '.join(map(repr, missing))}")
    kinds = typing.get_type_hints(annotation, include_extras=True)
    return {key: convert(one, kinds.get(key, Any), f"{where}.{key}") for key, one in value.items()}


def is_pydantic(kind: Any) -> bool:
    """Tell whether it is a model."""
    # A class of pydantic's can only be there if pydantic has been imported.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _pydantic(value: Any, annotation: Any, where: str) -> Any:
    import pydantic

    try:
        # From JSON, not from Python values: so that dates and the like are read in strict models, too.
        # And by alias, as others write it, or by name, as this module does; before 2.11 by what the model says.
        version = tuple(map(int, pydantic.VERSION.split(".")[:2]))
        by_name: dict[str, Any] = {"by_alias": True, "by_name": True} if version >= (2, 11) else {}
        return annotation.model_validate_json(json.dumps(value), **by_name)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, first["loc"]))
        # Not from the error, whose text has the values.
        raise BodyError(f"{where}{'.' + path if path else ''}: {first['msg']}") from None


def _require(holds: bool, value: Any, where: str, wanted: str, result: Any = None) -> Any:
    if not holds:
        raise BodyError(f"{where} is {_kind(value)}, not {wanted}")
    return result


_KINDS = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number"}


def _kind(value: Any) -> str:
    """Say what a value is, not which: it goes into statuses, logs and traces, and may be a secret."""
    return _KINDS.get(type(value), "null")
