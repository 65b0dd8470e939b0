"""The class that hostler calls."""

import inspect
import os
import sys
import traceback
from typing import Any, ClassVar

from . import _effects, _loop
from ._handler import Drop, Message, RetryAfter


class MessageHandler:
    """Hands each message to the handler of the project, and says what became of it."""

    #: The handler, as a function of the message.
    function: ClassVar[Any]

    def handle(self, message):
        from wit_world.imports import types

        try:
            _refresh_environment()
            _finished(self.function(Message(**vars(message))))
            return types.Outcome_Ack()
        except BaseException as error:  # noqa: BLE001
            cause = _cause(error)
            if isinstance(cause, Drop):
                return types.Outcome_Drop(str(cause) or None)
            if isinstance(cause, RetryAfter):
                return types.Outcome_NackRequeue(max(0, round(cause.seconds * 1000)))
            # The traceback goes to stderr, where hostler finds the cause; the attempt has failed.
            if cause is error:
                raise
            raise cause from None
        finally:
            _loop.forget()
            sys.stdout.flush()
            sys.stderr.flush()


def _finished(result: object) -> None:
    """Run what the handler has begun to its end."""
    if inspect.isawaitable(result):

        async def main():
            await result

        _loop.run(main())
    _loop.finish()


def _cause(error: BaseException) -> BaseException:
    """The exception that stands for a group of them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, BaseExceptionGroup):
        return error
    traceback.print_exception(error)
    inner = "; ".join(traceback.format_exception_only(each)[-1].strip() for each in error.exceptions)
    return RuntimeError(f"{error.message}: {inner}").with_traceback(error.__traceback__)


#: The variables that `[grant.config]` has set.
_from_config: set[str] = set()


def _refresh_environment() -> None:
    """`os.environ` is what `[grant.config]` says now, and a folder for packages that look for their settings there."""
    # An instance begins with no variables: componentize-py takes those of the build away.
    os.environ.setdefault("HOME", "/")
    if "wit_world.imports.store" not in sys.modules:
        return
    values = _effects.config.all()
    for name in _from_config - values.keys():
        os.environ.pop(name, None)
    os.environ.update(values)
    _from_config.clear()
    _from_config.update(values)
