"""The handler of a component: which function it is, and how a message reaches it."""

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass

from . import _payload


class Drop(Exception):
    """Give the message up: it becomes a dead letter with this reason."""


class RetryAfter(Exception):
    """Handle the message again after this many seconds, instead of the backoff of the queue."""

    def __init__(self, seconds: float):
        super().__init__(f"again in {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class Message:
    """One message, as one attempt receives it."""

    #: An idempotency key: the same for every attempt at this message.
    id: str
    queue: str
    body: bytes
    #: Names in lower case.
    headers: list[tuple[str, str]]
    #: The number of this start, from 1.
    attempt: int
    #: The number of starts after which the message is given up; 0 = never.
    max_attempts: int
    #: When the message was enqueued, in epoch milliseconds; 0 = unknown.
    enqueued_ms: int

    def header(self, name: str) -> str | None:
        """The first value of a header; None if there is none."""
        return next((value for known, value in self.headers if known == name.lower()), None)


Handler = typing.TypeVar("Handler", bound=Callable[..., object])

#: The functions with `@handler`.
_handlers: list[Callable[..., object]] = []


def handler(function: Handler) -> Handler:
    """Make a function the handler of the component. It stays an ordinary function: tests call it directly."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} has a `yield`: a handler returns once, and acknowledges by that")
    parameters = list(inspect.signature(function).parameters.values())
    if not 1 <= len(parameters) <= 2:
        raise TypeError(f"{function.__qualname__} takes {len(parameters)} parameters: a handler takes its payload, and the message if it needs it")
    _handlers.append(function)
    return function


def the_handler() -> Callable[[Message], object]:
    """The only function with `@handler`, as a function of the message."""
    match _handlers:
        case [function]:
            return _of_message(function)
        case []:
            raise TypeError("no function has @handler")
        case several:
            names = ", ".join(function.__qualname__ for function in several)
            raise TypeError(f"several functions have @handler: {names}; a component has one")


def _of_message(function: Callable[..., object]) -> Callable[[Message], object]:
    payload, *message = inspect.signature(function).parameters
    hints = typing.get_type_hints(function)
    wanted = hints.get(payload, typing.Any)
    if wanted is Message:
        return function
    read = _payload.reader(wanted)

    @functools.wraps(function)
    def handle(received: Message) -> object:
        try:
            value = read(received.body)
        except _payload.Unfit as why:
            raise Drop(str(why)) from None
        return function(value, received) if message else function(value)

    return handle
