"""Reads the body of a message as the type that a handler names: no more than the standard library can say."""

import dataclasses
import datetime
import decimal
import enum
import functools
import json
import types
import typing
import uuid
from collections.abc import Callable


class Unfit(Exception):
    """The body is not what the handler takes. The text holds no value of the body."""


#: Types that JSON has as text.
_OF_TEXT: dict[type, Callable[[str], object]] = {
    datetime.datetime: datetime.datetime.fromisoformat,
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: uuid.UUID,
}


def reader(wanted: object) -> Callable[[bytes], object]:
    """A function that reads a body as this type."""
    if wanted is bytes:
        return lambda body: body
    if wanted is str:
        return _text
    _check(wanted)
    return functools.partial(_json, wanted=wanted)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Unfit("the body is not UTF-8") from None


def _json(body: bytes, wanted: object) -> object:
    try:
        value = json.loads(_text(body), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Unfit("the body is not JSON") from None
    return _as(wanted, value, "")


def _no_constant(name: str) -> typing.NoReturn:
    raise ValueError(name)


def _fields(wanted: type) -> dict[str, tuple[object, bool]] | None:
    """The fields of a record, each with its type and whether it must be there; None if it is no record."""
    if dataclasses.is_dataclass(wanted):
        hints, missing = typing.get_type_hints(wanted), dataclasses.MISSING
        return {
            field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
            for field in dataclasses.fields(wanted)
            if field.init
        }
    if typing.is_typeddict(wanted):
        # The classes know which keys are required; `Required[...]` around a type says no more.
        return {name: (hint, name in wanted.__required_keys__) for name, hint in typing.get_type_hints(wanted).items()}
    return None


def _check(wanted: object, seen: tuple[object, ...] = ()) -> None:
    """Raise TypeError if no value could ever be read as this type: when the component is built."""
    if wanted in seen:
        return
    plain = (typing.Any, object, None, type(None), dict, list, str, int, float, bool, *_OF_TEXT)
    origin = typing.get_origin(wanted)
    if wanted in plain or origin is typing.Literal or (isinstance(wanted, type) and issubclass(wanted, enum.Enum)):
        return
    inner: typing.Iterable[object]
    if origin in (list, dict, typing.Union, types.UnionType):
        inner = typing.get_args(wanted)
    elif isinstance(wanted, type) and (fields := _fields(wanted)) is not None:
        inner = [hint for hint, _ in fields.values()]
    else:
        raise TypeError(f"a payload cannot be read as {_name(wanted)}: use a dataclass, a TypedDict, dict, list, str or bytes")
    for part in inner:
        _check(part, (*seen, wanted))


def _name(wanted: object) -> str:
    return wanted.__name__ if isinstance(wanted, type) and not typing.get_args(wanted) else str(wanted).replace("typing.", "")


def _as(wanted: object, value: object, at: str) -> typing.Any:
    """The value as this type. `at` is where it stands in the body."""

    def unfit(expected: str) -> Unfit:
        return Unfit(f"{at or 'the body'} is not {expected}")

    if wanted in (typing.Any, object):
        return value
    origin, args = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        for choice in args:
            try:
                return _as(choice, value, at)
            except Unfit as why:
                reason = why
        # Of `Order | None`, say how it is not an Order.
        raise reason if len(args) == 2 and type(None) in args else unfit(_name(wanted))
    if origin is typing.Literal:
        if not any(value == choice and type(value) is type(choice) for choice in args):
            raise unfit("one of " + ", ".join(map(repr, args)))
        return value
    if origin is list or wanted is list:
        if not isinstance(value, list):
            raise unfit("a list")
        return [_as(args[0], item, f"{at}[{place}]") for place, item in enumerate(value)] if args else value
    if origin is dict or wanted is dict:
        if not isinstance(value, dict):
            raise unfit("an object")
        return {name: _as(args[1], item, f"{at}[...]") for name, item in value.items()} if args else value
    if wanted in (None, type(None)):
        if value is not None:
            raise unfit("null")
        return None
    assert isinstance(wanted, type)
    if (fields := _fields(wanted)) is not None:
        if not isinstance(value, dict):
            raise unfit(f"an object ({wanted.__name__})")
        missing = [name for name, (_, required) in fields.items() if required and name not in value]
        if missing:
            raise Unfit(f"{at or 'the body'} has no {', '.join(missing)}")
        read = {
            name: _as(hint, value[name], f"{at}.{name}" if at else name)
            for name, (hint, _) in fields.items()
            if name in value
        }
        try:
            return wanted(**read)
        except ValueError as why:
            # What `__post_init__` refuses.
            raise Unfit(f"{at or 'the body'} is not a good {wanted.__name__}: {why}") from None
    if issubclass(wanted, enum.Enum) or wanted in _OF_TEXT:
        try:
            return _OF_TEXT.get(wanted, wanted)(value)
        except (ValueError, TypeError, ArithmeticError):
            raise unfit(f"a {wanted.__name__}") from None
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise unfit({str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[wanted])
    return value
