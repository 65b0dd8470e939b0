"""Reads orders. This file does not depend on WebAssembly, so `make test` runs it directly."""

import json
import re
from dataclasses import dataclass


class Drop(Exception):
    """The order can never be done. The text is the reason."""


class Later(Exception):
    """Something failed that may work later."""


@dataclass(frozen=True)
class Order:
    """An order, as a shop sends it."""

    id: str
    customer: str
    cents: int

    @classmethod
    def read(cls, body: bytes) -> "Order":
        """Read an order. Raises Drop if it is not one."""
        try:
            fields = json.loads(body.decode("utf-8"))
            order = cls(_name(fields["id"]), _name(fields["customer"]), _cents(fields["cents"]))
        # Too deep nesting is a RecursionError.
        except (ValueError, LookupError, TypeError, RecursionError):
            raise Drop("not an order") from None
        if order.cents == 0:
            raise Drop(f"order {order.id}: nothing to charge")
        return order

    def json(self) -> str:
        """What others get to know about it."""
        fields = {"order": self.id, "customer": self.customer, "cents": self.cents}
        return json.dumps(fields, separators=(",", ":"))


def _name(value: object) -> str:
    """A part of a key: 1 to 64 letters, digits and `-`."""
    if not isinstance(value, str) or not re.fullmatch("[A-Za-z0-9-]{1,64}", value):
        raise ValueError("not a name")
    return value


def _cents(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ValueError("not an amount")
    return value
