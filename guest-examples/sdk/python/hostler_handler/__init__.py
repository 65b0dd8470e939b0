"""Handlers for hostler: a function, its payload by type, and what it may do.

    @handler
    def charge(order: Order):
        ...

A return acknowledges the message. An exception is a failed attempt: the message comes again, after the backoff of the
queue. `Drop` gives a message up, and `RetryAfter` asks for another delay.
"""

from ._effects import HostError, config, hold, is_cancelled, key_value, publish, recall, remember, reply
from ._effects import seconds_left, secrets
from ._handler import Drop, Message, RetryAfter, handler

__all__ = [
    "Drop",
    "HostError",
    "Message",
    "RetryAfter",
    "config",
    "handler",
    "hold",
    "is_cancelled",
    "key_value",
    "publish",
    "recall",
    "remember",
    "reply",
    "seconds_left",
    "secrets",
]
__version__ = "0.1.0"
