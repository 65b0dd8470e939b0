"""What a handler may do: the interfaces of hostler that the component imports."""

import dataclasses
import importlib
import json
import typing

from ._handler import RetryAfter

#: What `hostler.toml` must have for each interface.
_GRANTS = {
    "publisher": "[grant.publish]",
    "key_value": "[grant.key-value]",
    "secrets": "[grant.secret]",
    "store": "[grant.config]",
    "flow": "stream, and no reliable list",
    "reply": "stream, and no reliable list",
    "http": "[[grant.http]]",
    "journal": "[grant.journal]",
}


class HostError(RuntimeError):
    """hostler refused a call, or could not make it."""


def interface(name: str) -> typing.Any:
    """An interface that the component imports."""
    try:
        return importlib.import_module(f"wit_world.imports.{name}")
    except ImportError:
        why = f"this component has no {_GRANTS.get(name, name)}: write it into hostler.toml, and build again"
        raise HostError(why) from None


def _call(name: str, function: str, *arguments: object) -> typing.Any:
    called = getattr(interface(name), function)
    # It is there wherever an interface is.
    from componentize_py_types import Err

    try:
        return called(*arguments)
    except Err as error:
        raise HostError(f"{name}.{function}: {error.value}") from None


def _bytes(value: object) -> tuple[bytes, str | None]:
    """A body, and its content type if it has become JSON."""
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value), None
        case str():
            return value.encode(), None
        case _:
            return json.dumps(value, default=_plain, separators=(",", ":")).encode(), "application/json"


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def publish(queue: str, body: object, headers: dict[str, str] | None = None, delay: float | None = None) -> None:
    """Publish to a queue, together with the acknowledgement of the message: both happen, or neither.

    bytes and texts are sent as they are, and everything else as JSON. `delay` is in seconds.
    """
    content, kind = _bytes(body)
    named = {name.lower(): value for name, value in (headers or {}).items()}
    if kind:
        named.setdefault("content-type", kind)
    delay_ms = None if delay is None else round(delay * 1000)
    outgoing = interface("publisher").Outgoing(body=content, headers=list(named.items()), delay_ms=delay_ms)
    _call("publisher", "publish", queue, outgoing)


class key_value:
    """Values that stay from message to message, by keys."""

    @staticmethod
    def get(key: str) -> bytes | None:
        """The value of a key; None if it has none. Sees what this attempt has set and deleted."""
        return _call("key_value", "get", key)

    @staticmethod
    def set(key: str, value: object, ttl: float | None = None) -> None:
        """Set a value together with the acknowledgement. It expires `ttl` seconds after that."""
        _call("key_value", "set", key, _bytes(value)[0], None if ttl is None else round(ttl * 1000))

    @staticmethod
    def delete(key: str) -> None:
        """Delete a value together with the acknowledgement."""
        _call("key_value", "delete", key)

    @staticmethod
    def increment(key: str, by: int = 1) -> int:
        """Add to a number at once, and return the sum: a message that is handled twice adds twice."""
        return _call("key_value", "increment", key, by)


def hold(seconds: float) -> RetryAfter:
    """The exception to raise for a message that waits: it comes again after that time, and the attempt is not charged.

    Raises `HostError` if the host does not hold the message.
    """
    _call("flow", "hold", round(seconds * 1000))
    return RetryAfter(seconds)


def reply(value: object) -> None:
    """Answer to a producer that waits, together with the acknowledgement: both happen, or neither.

    bytes and texts are sent as they are, and everything else as JSON. The last answer counts.
    """
    _call("reply", "set", _bytes(value)[0])


def recall(name: str) -> typing.Any:
    """The value that an attempt at this message has remembered last under this name; None if there is none."""
    value = _call("journal", "recall", name)
    return None if value is None else json.loads(value)


def remember(name: str, value: object) -> None:
    """Remember a value, as JSON, for later attempts at this message.

    It is there when this returns, also if this attempt fails.
    """
    _call("journal", "remember", name, json.dumps(value, default=_plain, separators=(",", ":")).encode())


class secrets:
    """Secrets that the operator exposes to the handler."""

    @staticmethod
    def get(name: str) -> str:
        """The present value of a secret."""
        return _call("secrets", "get", name)


class config:
    """Values of `[grant.config]`; `os.environ` has them, too."""

    @staticmethod
    def get(name: str, default: str | None = None) -> str | None:
        """The present value; the default if there is none."""
        value = _call("store", "get", name)
        return default if value is None else value

    @staticmethod
    def all() -> dict[str, str]:
        """Every value."""
        return dict(_call("store", "get_all"))


def seconds_left() -> float:
    """Until this attempt times out."""
    return interface("delivery").deadline_ms() / 1000


def is_cancelled() -> bool:
    """Whether the host is stopping: the handler should then end soon."""
    return interface("delivery").is_cancelled()
