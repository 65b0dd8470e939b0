"""A hostler for tests on this machine: the interfaces, and a server that answers every request."""

import sys
import types
from dataclasses import dataclass

#: The requests that arrived.
requests: list = []
#: Makes the response of a request.
answer = None
#: What was published.
published: list = []
#: The keys, as they are set.
keys: dict = {}
#: What is remembered.
journal: dict = {}


class Err(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value


@dataclass
class Request:
    method: str
    url: str
    headers: list
    body: bytes | None
    timeout_ms: int | None


@dataclass
class Response:
    status: int
    headers: list
    body: bytes


@dataclass
class Error_Denied:
    value: str


@dataclass
class Error_Timeout:
    pass


@dataclass
class Outgoing:
    body: bytes
    headers: list
    delay_ms: int | None


@dataclass
class Outcome_Ack:
    pass


@dataclass
class Outcome_NackRequeue:
    value: int | None


@dataclass
class Outcome_Drop:
    value: str | None


@dataclass
class Message:
    id: str = "1-0"
    queue: str = "orders"
    body: bytes = b""
    headers: list = None
    attempt: int = 1
    max_attempts: int = 4
    enqueued_ms: int = 0


def held(ms):
    if ms > 60_000:
        raise Err("it was held for too long")
    published.append(ms)


def replied(value):
    if len(value) > 64 << 10:
        raise Err("the reply is too large")
    published.append(value)


def fetch(request):
    requests.append(request)
    return answer(request) if answer else Response(200, [("content-type", b"application/json")], b'{"ok":true}')


def install(*interfaces):
    """Make the modules that componentize-py would make."""
    made = {
        "types": {"Outcome_Ack": Outcome_Ack, "Outcome_NackRequeue": Outcome_NackRequeue, "Outcome_Drop": Outcome_Drop},
        "http": {"Request": Request, "fetch": fetch},
        "publisher": {"Outgoing": Outgoing, "publish": lambda queue, message: published.append((queue, message))},
        "key_value": {
            "get": keys.get,
            "set": lambda key, value, ttl: keys.__setitem__(key, value),
            "delete": lambda key: keys.pop(key, None),
            "increment": lambda key, by: by,
        },
        "flow": {"hold": held},
        "reply": {"set": replied},
        "journal": {"recall": journal.get, "remember": journal.__setitem__},
        "store": {"get": {"region": "eu"}.get, "get_all": lambda: [("region", "eu")]},
        "delivery": {"deadline_ms": lambda: 30_000, "is_cancelled": lambda: False},
    }
    for name in ("wit_world", "wit_world.imports"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules["componentize_py_types"] = types.ModuleType("componentize_py_types")
    sys.modules["componentize_py_types"].Err = Err
    for name in ("types", "delivery", *interfaces):
        module = types.ModuleType(f"wit_world.imports.{name}")
        vars(module).update(made[name])
        sys.modules[f"wit_world.imports.{name}"] = module
