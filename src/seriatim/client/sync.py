"""The client for programs without an event loop: the same methods, which wait.

    from seriatim.client.sync import connect

    with connect("nats://127.0.0.1:4222") as bus, bus.subscribe("orders") as events:
        bus.publish("orders", b"order 1")
        for event in events.within(5.0):
            ...

A `Facade` wraps an object of the asynchronous client, which runs in an event loop in its own thread. The facade passes
every call on to it and waits for the result. `publish_nowait` returns a `concurrent.futures.Future`.

A forked process has no such thread. A bus that its parent opened raises an error immediately, instead of waiting for
ever; a bus that the child opens itself works.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from seriatim.client import connect as connect_async
from seriatim.client.bus import Bus
from seriatim.client.session import AFTER_FORK, UsedOnce
from seriatim.client.subscription import Subscription
from seriatim.model import Closed, TimedOut

Result = TypeVar("Result")


class _LoopThread:
    """One event loop for all synchronous buses of the process; it ends with the last of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._of_parent: list[asyncio.AbstractEventLoop] = []  # never to be collected: that would close its sockets

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child whose parent had opened something."""
        return bool(self._of_parent)

    def after_fork(self) -> None:
        """Forget the parent's thread in a forked child: it does not exist there, and its lock may be held for ever."""
        self._lock = threading.Lock()
        if self._loop is not None:
            self._of_parent.append(self._loop)
        self._loop = self._thread = None
        self._users = 0

    def enter(self) -> None:
        with self._lock:
            self._users += 1
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="seriatim", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._loop = self._thread = None

    def begin(self, coroutine: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Run it in the loop; the future is done when it is."""
        if self._loop is None:
            coroutine.close()
            if self.is_forked:
                raise Closed(f"this {AFTER_FORK}")
            raise Closed("enter the bus first, and use it inside: with connect(...) as bus")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run it in the loop and wait. An interrupt (Ctrl-C) cancels it."""
        future = self.begin(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_thread = _LoopThread()
os.register_at_fork(after_in_child=_thread.after_fork)


class Confirmation(Future[Result]):
    """The result of `publish_nowait`: done when `inner` is. A forked child does not wait for what its parent
    publishes."""

    def __init__(self, inner: "Future[Result]") -> None:
        super().__init__()
        self._inner = inner
        self._process = os.getpid()
        inner.add_done_callback(self._settle)

    def _settle(self, inner: "Future[Result]") -> None:
        if inner.cancelled():
            super().cancel()
        elif self.set_running_or_notify_cancel():
            if (error := inner.exception()) is not None:
                self.set_exception(error)
            else:
                self.set_result(inner.result())

    def cancel(self) -> bool:
        self._inner.cancel()
        return super().cancel()

    def result(self, timeout: float | None = None) -> Result:
        self._check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_process()
        return super().exception(timeout)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise Closed(f"the bus that publishes this {AFTER_FORK}")


class Facade:
    """Wraps an object of the loop's thread: the same attributes and methods, but they wait."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        if callable(getattr(type(self._target), name, None)):

            def call(*arguments: Any, **keywords: Any) -> Any:
                return _thread.run(_call(getattr(self._target, name), *arguments, **keywords))

            return call
        return _thread.run(_call(getattr, self._target, name))

    def __enter__(self) -> "Facade":
        if isinstance(self._target, Bus):
            _thread.enter()
        try:
            _thread.run(self._target.__aenter__())
        except BaseException:
            if isinstance(self._target, Bus):
                _thread.leave()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        if isinstance(self._target, UsedOnce) and self._target.is_forked:
            return  # the parent closes it
        try:
            _thread.run(self._target.__aexit__(*error))
        finally:
            if isinstance(self._target, Bus):
                _thread.leave()

    def __iter__(self) -> Iterator[Any]:
        """Waits for each item; ends when the subscription is closed."""
        iterator = aiter(self._target)
        while True:
            try:
                item = _thread.run(_next(iterator))
            except StopAsyncIteration:
                return
            yield item

    def within(self, timeout_s: float) -> Iterator[Any]:
        """Like iterating over a subscription, but ends when nothing has come for `timeout_s`."""
        while True:
            try:
                item = self.next(timeout_s)
            except TimedOut:
                return
            yield item


def connect(url: str, **options: Any) -> Facade:
    """A bus for programs without an event loop; takes what `seriatim.connect` takes. Enter it: `with connect(url)`."""
    return Facade(connect_async(url, **options))


async def _call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function in the loop's thread, and wait for its result if that is awaitable."""
    result = function(*arguments, **keywords)
    if isinstance(result, asyncio.Future):
        return Confirmation(_thread.begin(_wait_for(result)))
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, Subscription) or inspect.isasyncgen(result):
        return Facade(result)
    return result


async def _wait_for(future: "asyncio.Future[Result]") -> Result:
    return await future


async def _next(iterator: AsyncIterator[Result]) -> Result:
    return await anext(iterator)
