"""Convert JSON or TOML to frozen dataclasses and back, with strict types and hints for misspelt keys."""

import dataclasses
import inspect
import json
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sightline.close_names import did_you_mean
from sightline.errors import SightlineError

T = TypeVar("T")


def parse(kind: type[T], data: object, where: str, error: type[SightlineError]) -> T:
    """Convert a mapping to the dataclass `kind`; if invalid, raises `error` with a message that begins with `where`.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     width: int
    ...     height: int = 1
    >>> parse(Size, {"width": 3}, "size", SightlineError)
    Size(width=3, height=1)
    >>> parse(Size, {"widht": 3}, "size", SightlineError)
    Traceback (most recent call last):
        ...
    sightline.errors.SightlineError: size: unknown key "widht"
    Did you mean "width"?
    """
    if not isinstance(data, Mapping):
        raise error(f"{where}: expected a table of settings, found {data!r}")
    return call(kind, data, where, error)


def call(kind: type[T], data: Mapping[str, object], where: str, error: type[SightlineError]) -> T:
    """Call a class with settings as keyword arguments, checked against the annotations of its constructor."""
    known = inspect.signature(kind).parameters
    hints = get_type_hints(kind if dataclasses.is_dataclass(kind) else kind.__init__)
    for key in data:
        if key not in known:
            raise error(f'{where}: unknown key "{key}"', did_you_mean(str(key), known, "Known keys"))
    for name, parameter in known.items():
        if name not in data and parameter.default is inspect.Parameter.empty:
            raise error(f'{where}: "{name}" is missing')
    return kind(**{key: _value(hints[key], value, f"{where}.{key}", error) for key, value in data.items()})


def read(
    kind: type[T],
    path: Path,
    what: str,
    format: int,
    error: type[SightlineError],
    way_out: str = "",
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = lambda data: data,
) -> T:
    """Read a JSON file that describes `what`, checking its format number; raises `error` if it is invalid.

    upgrade: converts data in an older format to the current one; it returns unknown formats unchanged.

    A missing file raises `FileNotFoundError`, for the caller to handle.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as trouble:
        raise error(f"{path}: cannot be read: {trouble}", way_out) from trouble
    data = upgrade(data) if isinstance(data, dict) else data
    found = data.get("format") if isinstance(data, dict) else None
    if found != format:
        or_else = f" Or {way_out[0].lower()}{way_out[1:]}" if way_out else ""
        raise error(
            f"{path}: has {what} format {found!r}, but this version of Sightline reads format {format}",
            f"Update Sightline.{or_else}",
        )
    return parse(kind, data, str(path), error)


def plain(value: object) -> Any:
    """Convert a dataclass to plain JSON values; fields that are None are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: plain(item) for name, item in pairs if item is not None}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | frozenset):
        return [plain(item) for item in value]
    return value


def _value(kind: Any, value: object, where: str, error: type[SightlineError]) -> Any:
    """Check one value against its annotation, converting lists to tuples and tables to dataclasses."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return parse(kind, value, where, error)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        return _first_that_fits([option for option in inner if option is not type(None)], value, where, error)
    if origin is Literal:
        if value not in inner:
            raise error(f"{where}: {value!r} is not an allowed value", did_you_mean(str(value), map(str, inner)))
        return value
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(value):
            raise error(f"{where}: expected {len(kinds)} values, found {len(value)}")
        return tuple(_value(k, v, f"{where}[{i}]", error) for i, (k, v) in enumerate(zip(kinds, value, strict=True)))
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(key): _value(inner[1], item, f"{where}.{key}", error) for key, item in value.items()}
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if (
        isinstance(kind, type)
        and origin is None
        and isinstance(value, kind)
        and not (kind is int and isinstance(value, bool))
    ):
        return value
    if origin is tuple:
        way_out = f"Put it in brackets: {json.dumps([value], ensure_ascii=False)}" if isinstance(value, str) else ""
        raise error(f"{where}: expected a list, found {value!r}", way_out)
    wanted = "a table of settings" if origin is not None else getattr(kind, "__name__", str(kind))
    raise error(f"{where}: expected {wanted}, found {value!r}")


def _first_that_fits(options: list[Any], value: object, where: str, error: type[SightlineError]) -> Any:
    """Try the members of a union in order; raises the error of the last one that has all given keys, if any has."""
    for option in options:
        try:
            return _value(option, value, where, error)
        except error:
            continue
    tables = [option for option in options if dataclasses.is_dataclass(option) and isinstance(value, Mapping)]
    known = [table for table in tables if set(value) <= {one.name for one in dataclasses.fields(table)}]  # type: ignore[call-overload]
    return _value((known or options)[-1], value, where, error)
