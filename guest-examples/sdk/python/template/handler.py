"""Takes orders. A return is an ack; an exception is a failed attempt, and the order comes again."""

import logging
from dataclasses import dataclass

# @with http
import requests
# @end
from hostler_handler import Drop, Message, handler
# @with publish
from hostler_handler import publish
# @end
# @with key-value
from hostler_handler import key_value
# @end
# @with secrets
from hostler_handler import secrets
# @end


@dataclass
class Order:
    id: str
    customer: str
    cents: int


@handler
def take(order: Order, message: Message):
    # @with secrets
    if message.header("x-shop-token") != secrets.get("shop"):
        raise Drop("the token of the shop is wrong")
    # @end
    if order.cents <= 0:
        raise Drop(f"order {order.id}: nothing to charge")
    # @with http
    # hostler adds an idempotency key, the same in every attempt: no order is paid twice.
    answer = requests.post("https://payments.example.com/charges", json={"order": order.id, "cents": order.cents})
    if answer.status_code == 402:
        raise Drop(f"order {order.id}: the payment was declined")
    answer.raise_for_status()
    # @end
    # @with key-value
    # Written with the ack: each order counts once.
    total = int(key_value.get(f"total:{order.customer}") or 0)
    key_value.set(f"total:{order.customer}", str(total + order.cents))
    # @end
    # @with publish
    # With the ack, too: each order has one invoice.
    publish("invoices", order)
    # @end
    logging.info("attempt %d: order %s is done", message.attempt, order.id)
