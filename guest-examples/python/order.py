"""Decides about an order. This file does not depend on WebAssembly, so `make test` runs it directly."""

import json
import random
import re
from dataclasses import dataclass

# The longest delay between two attempts, in milliseconds.
DELAY_MAX = 10_000


@dataclass(frozen=True)
class Ack:
    def __str__(self) -> str:
        return "charged"


@dataclass(frozen=True)
class Again:
    delay_ms: int

    def __str__(self) -> str:
        return f"payment timed out, again in {self.delay_ms} ms"


@dataclass(frozen=True)
class Reject:
    reason: str

    def __str__(self) -> str:
        return self.reason


Verdict = Ack | Again | Reject


class NotAnOrder(ValueError):
    pass


@dataclass(frozen=True)
class Order:
    id: str
    amount: float
    currency: str
    status: str
    # What to simulate: `payment-timeout`, `random` or `crash`.
    simulate: str
    # How many attempts fail with `payment-timeout`.
    failures: int

    @classmethod
    def parse(cls, body: bytes) -> "Order":
        # With bytes, `json.loads` would guess an encoding.
        fields = json.loads(body.decode("utf-8"), parse_constant=_no_number)
        if not isinstance(fields, dict):
            raise NotAnOrder("it is not an object")
        failures = fields.get("failures", 1)
        if type(failures) is not int or not 0 <= failures < 1 << 32:
            raise NotAnOrder("`failures` is not a count")
        return cls(
            id=_text_or_number(fields, "id"),
            amount=_number(_text_or_number(fields, "amount")),
            currency=_text(fields, "currency", "EUR"),
            status=_text(fields, "status", ""),
            simulate=_text(fields, "simulate", ""),
            failures=failures,
        )


def _text_or_number(fields: dict, name: str) -> str:
    """`XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`, so text and numbers are accepted."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise NotAnOrder(f"`{name}` is missing")
    return _valid(str(value))


def _number(text: str) -> float:
    value = json.loads(text, parse_constant=_no_number)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotAnOrder(f"`{text}` is not a number")
    return float(value)


def _text(fields: dict, name: str, default: str) -> str:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise NotAnOrder(f"`{name}` is not text")
    return _valid(value)


def _valid(text: str) -> str:
    """JSON can escape half a character. Such text is not valid UTF-8, so an answer could not contain it."""
    text.encode("utf-8")
    return text


def _no_number(constant: str) -> float:
    raise NotAnOrder(f"{constant} is not a number")


def handle(body: bytes, attempt: int) -> Verdict:
    """Charge an order. `attempt` is 1 the first time."""
    try:
        order = Order.parse(body)
    # Parsing raises a ValueError, except for too deep nesting and for a too large number.
    except (ValueError, RecursionError, OverflowError):
        return Reject("not an order")
    if not order.amount > 0:
        return Reject(f"order {order.id}: nothing to charge")
    if not re.fullmatch("[A-Z]{3}", order.currency):
        return Reject(f"order {order.id}: `{order.currency}` is not a currency")
    if order.status == "cancelled":
        return Reject(f"order {order.id}: it was cancelled")
    if order.simulate == "payment-timeout" and attempt <= order.failures:
        return Again(delay(attempt))
    if order.simulate == "random":
        # No other message gets this number.
        return Reject(f"order {order.id}: drew {random.random()}")
    if order.simulate == "crash":
        # A bug that a second attempt does not cure. The host counts a failed attempt.
        raise RuntimeError(f"order {order.id} hit a bug")
    return Ack()


def delay(attempt: int) -> int:
    """The delay doubles after every attempt, in milliseconds."""
    return min(100 << min(attempt - 1, 10), DELAY_MAX)
