"""What happens to an order. Nothing here knows WebAssembly: `make test` runs it as it is."""

import json
import re
from dataclasses import dataclass

# The longest wait between two attempts, in milliseconds.
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
    # What goes wrong, to try things out: `payment-timeout` or `crash`.
    simulate: str
    # How many attempts `payment-timeout` fails.
    failures: int

    @classmethod
    def parse(cls, body: bytes) -> "Order":
        # Given bytes, `json.loads` would guess an encoding.
        fields = json.loads(body.decode("utf-8"), parse_constant=_no_number)
        if not isinstance(fields, dict):
            raise NotAnOrder("it is no object")
        failures = fields.get("failures", 1)
        if type(failures) is not int or not 0 <= failures < 1 << 32:
            raise NotAnOrder("`failures` is no count")
        return cls(
            id=_text_or_number(fields, "id"),
            amount=_number(_text_or_number(fields, "amount")),
            currency=_text(fields, "currency", "EUR"),
            status=_text(fields, "status", ""),
            simulate=_text(fields, "simulate", ""),
            failures=failures,
        )


def _text_or_number(fields: dict, name: str) -> str:
    """`XADD orders * id 1 amount 5` arrives as `{"id":"1","amount":"5"}`."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        raise NotAnOrder(f"`{name}` is missing")
    return _valid(str(value))


def _number(text: str) -> float:
    value = json.loads(text, parse_constant=_no_number)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotAnOrder(f"`{text}` is no number")
    return float(value)


def _text(fields: dict, name: str, default: str) -> str:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise NotAnOrder(f"`{name}` is no text")
    return _valid(value)


def _valid(text: str) -> str:
    """JSON can escape half a character; what is not UTF-8 could not be answered."""
    text.encode("utf-8")
    return text


def _no_number(constant: str) -> float:
    raise NotAnOrder(f"{constant} is no number")


def handle(body: bytes, attempt: int) -> Verdict:
    """Charge an order. `attempt` is 1 the first time."""
    try:
        order = Order.parse(body)
    # All that parsing raises is a ValueError, but for nesting that is too deep, or a number.
    except (ValueError, RecursionError, OverflowError):
        return Reject("not an order")
    if not order.amount > 0:
        return Reject(f"order {order.id}: nothing to charge")
    if not re.fullmatch("[A-Z]{3}", order.currency):
        return Reject(f"order {order.id}: `{order.currency}` is no currency")
    if order.status == "cancelled":
        return Reject(f"order {order.id}: it was cancelled")
    if order.simulate == "payment-timeout" and attempt <= order.failures:
        return Again(delay(attempt))
    if order.simulate == "crash":
        # A bug that no second attempt cures: the host counts it as a failed attempt.
        raise RuntimeError(f"order {order.id} hit a bug")
    return Ack()


def delay(attempt: int) -> int:
    """Twice as long after every attempt, in milliseconds."""
    return min(100 << min(attempt - 1, 10), DELAY_MAX)
