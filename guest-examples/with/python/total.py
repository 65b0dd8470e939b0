# @with key-value
"""Remembers how much each customer has ordered."""

from wit_world.imports import key_value

from order import Order


def add(order: Order) -> None:
    """The sum is written together with the acknowledgement: each order counts once."""
    key = f"total:{order.customer}"
    known = key_value.get(key)  # None if there is no value
    total = int(known or b"0") + order.cents
    key_value.set(key, str(total).encode(), None)
    # A customer who orders needs no reminder. It goes with the acknowledgement, too.
    key_value.delete(f"reminder:{order.customer}")
    # At once: an order that is handled twice counts twice.
    key_value.increment("attempts", 1)
# @end
