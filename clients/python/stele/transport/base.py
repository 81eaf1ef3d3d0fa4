"""The interface of a transport, with shared retry pauses and errors."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from ..config import Endpoint
from ..errors import (
    BrokerUnavailableError,
    ConnectionLostError,
    RecordTooLargeError,
    RequestTimedOutError,
    SteleClientError,
)
from ..operations.base import Operation
from ..wire.framing import FRAME_BYTES_MAX

R = TypeVar("R")

# Independent of ``random.seed``: programs with the same seed would all retry at the same moments.
_RANDOM = random.SystemRandom()
# The first retry goes unnoticed; the longest pause still feels prompt.
BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
# A connection that breaks this often on the same call does not break by chance.
REPETITIONS_MAX = 4


class AsyncTransport(Protocol):
    """Carries operations of one event loop; any number of tasks may call at once."""

    @property
    def fetches_many(self) -> bool:
        """Whether one Fetch may name several partitions."""
        ...

    @property
    def keeps_order(self) -> bool:
        """Whether the broker executes calls in the order in which they were started.

        ``call_all`` starts them in the order given.
        """
        ...

    @property
    def broker_partitions_by_key(self) -> bool:
        """Whether the broker chooses the partition by key if a produce names none."""
        ...

    async def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        """Execute ``operation`` once.

        Cancelling the caller is safe; its response is dropped.

        Raises:
            BrokerUnavailableError: no connection in time; nothing was sent.
            ConnectionLostError, RequestTimedOutError: the request was sent, and no
                response came.
            SteleClientError: the typed error of the broker.
        """
        ...

    async def call_all(
        self, operations: Sequence[Operation[R]], *, timeout_s: float
    ) -> list[R | SteleClientError]:
        """Execute all operations, in order if the transport keeps order.

        Returns a result or an error per operation, and raises none of them.
        """
        ...

    async def close(self) -> None:
        """Close the connections; pending calls fail with ConnectionLostError."""
        ...


class BlockingTransport(Protocol):
    """Carries operations of any number of threads or gevent greenlets."""

    @property
    def fetches_many(self) -> bool: ...
    @property
    def keeps_order(self) -> bool:
        """Whether ``call_all`` pipelines operations that the broker executes in order."""
        ...

    @property
    def broker_partitions_by_key(self) -> bool: ...

    def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        """Execute ``operation`` once, blocking the thread; see ``AsyncTransport.call``."""
        ...

    def call_all(self, operations: Sequence[Operation[R]], *, timeout_s: float) -> list[R | SteleClientError]:
        """Execute all operations, in order if the transport keeps order.

        Returns a result or an error per operation, and raises none of them.
        """
        ...

    def close(self) -> None: ...


class Endpoints:
    """The brokers of a URL, and the one to connect to.

    After a failure it is the next one, for all who share this.

    Each client begins at a random one, so that many clients with one URL spread over the brokers.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.all: tuple[Endpoint, ...] = endpoint.all
        self._first = self._index = _RANDOM.randrange(len(self.all))

    @property
    def current(self) -> Endpoint:
        return self.all[self._index]

    def move_on(self, failed: Endpoint) -> bool:
        """Go on with the broker after ``failed``; return whether all have been tried, so that a pause is due."""
        if self.current is failed:
            self._index = (self._index + 1) % len(self.all)
        return self._index == self._first

    def attempt_s(self, left_s: float) -> float:
        """Return how long one attempt to connect may take of the time that is left."""
        return max(left_s / len(self.all), 0.001)


def backoff() -> Iterator[float]:
    """Yield pauses between attempts in seconds, without end: doubling, with jitter.

    The jitter spreads the reconnects of many clients after a restart of the broker.
    """
    ceiling = BACKOFF_FIRST_S
    while True:
        yield _RANDOM.uniform(ceiling / 2, ceiling)
        ceiling = min(ceiling * 2, BACKOFF_MAX_S)


def retry_pause_s(failures: int) -> float:
    """Return the pause after this many consecutive failures, as ``backoff`` yields it."""
    return _RANDOM.uniform(0.5, 1.0) * min(BACKOFF_FIRST_S * 2 ** min(failures, 16), BACKOFF_MAX_S)


def frame_of(operation: Operation[object]) -> bytes:
    """Encode the frame of an operation.

    Raises:
        RecordTooLargeError: the frame exceeds the limit of the protocol, and the broker
            would close the connection.
    """
    frame = operation.to_frame().encode()
    if len(frame) > FRAME_BYTES_MAX:
        raise RecordTooLargeError(
            f"the request has {len(frame)} bytes, more than the {FRAME_BYTES_MAX} of a frame; send fewer records"
        )
    return frame


def unavailable(endpoint: Endpoint, cause: object) -> BrokerUnavailableError:
    why = f" ({cause})" if str(cause) else ""
    return BrokerUnavailableError(
        f"no broker answers at {endpoint.host}:{endpoint.port}{why}; "
        "start it or correct the URL; the next call reconnects"
    )


def lost(endpoint: Endpoint, cause: object) -> ConnectionLostError:
    why = f" ({cause})" if str(cause) else ""
    return ConnectionLostError(
        f"the connection to {endpoint.host}:{endpoint.port} broke before the response{why}; "
        "the broker may have executed the request; the next call reconnects"
    )


def timed_out(endpoint: Endpoint, timeout_s: float) -> RequestTimedOutError:
    return RequestTimedOutError(
        f"{endpoint.host}:{endpoint.port} did not answer within {timeout_s:g} s; it may still "
        "execute the request"
    )
