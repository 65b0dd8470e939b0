"""A handler of the SDK that reads an order and logs it."""

from dataclasses import dataclass

from hostler_handler import Drop, Message, handler


@dataclass
class Order:
    id: str
    amount: float


@handler
def handle(order: Order, message: Message):
    if order.amount <= 0:
        raise Drop(f"order {order.id}: nothing to charge")
    print(f"attempt {message.attempt}: order {order.id}, {order.amount}")
