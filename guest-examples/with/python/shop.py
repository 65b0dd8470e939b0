# @with secrets
"""Knows who may send orders."""

from wit_world.imports import secrets
from wit_world.imports.types import Message

from order import Drop


def check(message: Message) -> None:
    """Compare the token of the message with the secret."""
    if ("x-shop-token", secrets.get("shop")) not in message.headers:
        raise Drop("the token of the shop is wrong")
# @end
