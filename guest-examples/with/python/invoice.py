# @with publish
"""Publishes an invoice."""

from wit_world.imports import publisher

from order import Order


def publish(order: Order) -> None:
    """The invoice appears together with the acknowledgement: once for each order, or not at all."""
    invoice = publisher.Outgoing(
        body=order.json().encode(),
        headers=[("content-type", "application/json")],
        delay_ms=None,
    )
    publisher.publish("invoices", invoice)
# @end
