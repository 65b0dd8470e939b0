"""asyncio in a component: one thread, and no task is lost.

A handler's call ends when its tasks have ended. A task that cannot end is an error that names it.
"""

import asyncio
import selectors
import time
import warnings
import weakref
from collections.abc import Coroutine
from typing import Any

from . import _effects, _sockets


class UnfinishedWork(RuntimeError):
    """Work of the handler that did not run to its end."""


class _Selector(selectors._BaseSelectorImpl):
    """Waits for sockets, which never wait, and for timers."""

    #: What waits, once the handler has returned.
    waiting = ""

    def select(self, timeout=None):
        found = []
        for key in self.get_map().values():
            ready = _sockets.ready(key.fd)
            events = (selectors.EVENT_READ if ready & 1 else 0) | (selectors.EVENT_WRITE if ready & 2 else 0)
            if events & key.events:
                found.append((key, events & key.events))
        if found:
            return found
        if timeout is None:
            raise UnfinishedWork(f"{self.waiting or 'the handler'} waits for something that never happens")
        if timeout > 0:
            if self.waiting and timeout > _effects.seconds_left():
                raise UnfinishedWork(f"the handler has returned, and {self.waiting} sleeps beyond the time of the attempt")
            time.sleep(timeout)
        return []


class Loop(asyncio.selector_events.BaseSelectorEventLoop):
    """The event loop of a component."""

    def __init__(self):
        self._waits = _Selector()
        super().__init__(self._waits)
        self.tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._task)
        _loops.add(self)

    def _task(self, loop, coroutine, **options):
        task = asyncio.Task(coroutine, loop=loop, **options)
        self.tasks.append(task)
        return task

    # There is no other thread that would wake it.
    def _make_self_pipe(self):
        pass

    _close_self_pipe = _write_to_self = _make_self_pipe

    def run_in_executor(self, executor, function, *arguments):
        """Runs it here and now: `asyncio.to_thread` works, one after the other."""
        future = self.create_future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def finish(self) -> None:
        """Run every task to its end, and raise what one of them raised that nothing has taken."""
        while running := [task for task in self.tasks if not task.done()]:
            names = ", ".join(task.get_coro().__qualname__ for task in running[:3])
            self._waits.waiting = f"the task {names}"
            self.run_until_complete(asyncio.wait(running))
        self._waits.waiting = ""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            # So long as this is set, nothing has asked for the exception.
            if task.done() and not task.cancelled() and task._log_traceback:
                raise task.exception()


#: Those that are open, or may be.
_loops: "weakref.WeakSet[Loop]" = weakref.WeakSet()
#: Coroutines that were made, and never awaited.
_never_awaited: list[str] = []


def run(main: Coroutine[Any, Any, Any], *, debug: bool | None = None, loop_factory: Any = None) -> Any:
    """asyncio.run, which cancels no task that is unfinished: it runs them to the end."""
    with asyncio.Runner(debug=debug, loop_factory=Loop) as runner:
        result = runner.run(main)
        runner.get_loop().finish()
        return result


def finish() -> None:
    """Run what the handler has left in loops of its own to the end."""
    for loop in list(_loops):
        if not loop.is_closed():
            loop.finish()
    if _never_awaited:
        names = ", ".join(_never_awaited)
        _never_awaited.clear()
        raise UnfinishedWork(f"{names} was called without `await`: nothing of it ran")


def forget() -> None:
    """Cancel what a failed attempt has left: the next one may run in the same instance."""
    for loop in list(_loops):
        tasks = [] if loop.is_closed() or loop.is_running() else [task for task in loop.tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.tasks.clear()
        loop._waits.waiting = ""
    _never_awaited.clear()


def _warn_never_awaited(coroutine: Coroutine[Any, Any, Any]) -> None:
    _never_awaited.append(coroutine.__qualname__)


def install() -> None:
    """Make this the asyncio of the component."""
    asyncio.run = asyncio.runners.run = run
    asyncio.new_event_loop = asyncio.events.new_event_loop = asyncio.runners.events.new_event_loop = Loop
    asyncio.SelectorEventLoop = asyncio.DefaultEventLoop = Loop
    selectors.DefaultSelector = selectors.SelectSelector = _Selector
    warnings._warn_unawaited_coroutine = _warn_never_awaited
