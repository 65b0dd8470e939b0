"""Charges an order with Stripe's SDK, and publishes its invoice."""

from dataclasses import dataclass

import stripe
from hostler_handler import Drop, Message, handler, publish

# hostler.toml adds the real key: the handler never sees it.
stripe.api_key = "of the operator"
# A failed attempt comes again after the backoff of the queue.
stripe.max_network_retries = 0


@dataclass
class Order:
    id: str
    cents: int
    card: str


@handler
def charge(order: Order, message: Message):
    try:
        charged = stripe.Charge.create(
            amount=order.cents, currency="eur", source=order.card, idempotency_key=message.id
        )
    except stripe.CardError as declined:
        raise Drop(f"order {order.id}: {declined.code}")
    publish("invoices", {"order": order.id, "charge": charged.id, "cents": charged.amount})
