"""Concurrency with threads, the counterpart of ``async_concurrency``.

Names of ``threading`` and ``time`` are looked up when they are used, because gevent may replace them
after the import.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from . import forks
from .errors import SteleClientError

K = TypeVar("K")
R = TypeVar("R")


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def give_way() -> None:
    """Do nothing: other threads run by themselves."""


def run_at_once(run: Callable[[], None]) -> None:
    """Call a function, in a caller that may wait."""
    run()


def in_thread(run: Callable[..., R], *arguments: Any) -> R:
    """Call a function that may block, in this thread."""
    return run(*arguments)


def time_limit(deadline_s: float) -> contextlib.AbstractContextManager[object]:
    """Do nothing: a block of a thread cannot be ended from outside, and has to end by itself."""
    del deadline_s
    return contextlib.nullcontext()


def run_until(deadline_s: float, run: Callable[[float], object]) -> None:
    """Run a function, which gets the deadline and has to end by itself."""
    run(deadline_s)


class Closing:
    """What a ``with`` block closes at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Slots:
    """Does nothing: the number of threads bounds that of their calls."""

    def __init__(self, count: int) -> None:
        del count

    def take(self) -> None:
        pass

    def give_back(self) -> None:
        pass


class Worker:
    """Runs a function in a daemon thread beside its owner, until ``stop``.

    The child of a fork does not have it: there, ``stop`` does nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._process = 0

    def start(self, run: Callable[[], None]) -> None:
        self._process = os.getpid()
        # A thread of the parent may have held the lock of the last one.
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    def stops_within(self, seconds: float) -> bool:
        """Wait, as the worker; return whether it has to end now."""
        return self._stopping.wait(seconds)

    def cancel(self) -> None:
        """Let the worker end, without waiting for it."""
        if self._thread is not None and self._process == os.getpid():
            self._stopping.set()

    def stop(self, *, wait_s: float | None = None) -> None:
        """Wait until the worker has ended, for at most ``wait_s``, unless it calls this itself."""
        self.cancel()
        thread = self._thread
        if thread is not None and self._process == os.getpid() and thread is not threading.current_thread():
            thread.join(wait_s)


class Monitor:
    """Guards state that several threads change, and wakes those that wait for a change.

    A ``with`` block surrounds every access that is more than one step.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # A thread of the parent may have held it.
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        self._changed.acquire()

    def __exit__(self, *_: object) -> None:
        self._changed.notify_all()
        self._changed.release()

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until ``is_so()``, which is called again after each block; return its last result."""
        with self._changed:
            return self._changed.wait_for(is_so, timeout_s)


class SharedCalls(Generic[K, R]):
    """Lets callers with the same key share one call.

    Each of them gets its result, or its ``SteleClientError``.
    """

    def __init__(self) -> None:
        self._calls: dict[K, Future[R]] = {}
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        # The threads that end them are the parent's.
        self._calls = {}

    def call(self, key: K, make: Callable[[], R]) -> R:
        """Return the result of the call for ``key``, which ``make`` executes if none is under way.

        If its thread is interrupted, another caller executes it again.
        """
        while True:
            own: Future[R] = Future()
            shared = self._calls.setdefault(key, own)
            if shared is own:
                return self._execute(key, make, own)
            try:
                return shared.result()
            except SteleClientError as error:
                raise error.twin() from None
            except CancelledError:
                continue

    def _execute(self, key: K, make: Callable[[], R], own: Future[R]) -> R:
        try:
            result = make()
        except BaseException as error:
            self._calls.pop(key, None)
            if isinstance(error, SteleClientError):
                own.set_exception(error.twin())
            else:
                own.cancel()
            raise
        self._calls.pop(key, None)
        own.set_result(result)
        return result
