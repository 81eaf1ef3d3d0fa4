"""The interface of a transport, and what its implementations share."""

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

# A first retry soon enough not to be noticed, a last pause short enough to feel prompt.
BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
# A connection that breaks as often on the same call does not break by chance.
REPETITIONS_MAX = 4


class AsyncTransport(Protocol):
    """Carries operations from one event loop; any number of tasks may call at once."""

    @property
    def fetches_many(self) -> bool:
        """One Fetch may name many partitions."""
        ...

    @property
    def keeps_order(self) -> bool:
        """Calls started in an order are carried out by the broker in that order."""
        ...

    @property
    def broker_partitions_by_key(self) -> bool:
        """A produce without partition goes to the one of its key, chosen by the broker."""
        ...

    async def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        """Carry out ``operation`` once.

        Cancelling the caller is safe: the answer is dropped when it comes.

        Raises:
            BrokerUnavailableError: not reached in time; nothing was sent.
            ConnectionLostError, RequestTimedOutError: sent, and no answer came.
            SteleClientError: the broker's own error, typed.
        """
        ...

    async def close(self) -> None:
        """Close the connections; calls under way fail with ConnectionLostError."""
        ...


class BlockingTransport(Protocol):
    """Carries operations from any number of threads (or gevent's greenlets)."""

    @property
    def fetches_many(self) -> bool: ...
    @property
    def keeps_order(self) -> bool:
        """``call_all`` sends several before the first is answered, and they are carried out in order."""
        ...

    @property
    def broker_partitions_by_key(self) -> bool: ...

    def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        """As ``AsyncTransport.call``, holding the calling thread."""
        ...

    def call_all(self, operations: Sequence[Operation[R]], *, timeout_s: float) -> list[R | SteleClientError]:
        """Carry out all, in order where the transport keeps order; an outcome for each. Never raises one."""
        ...

    def close(self) -> None: ...


def backoff() -> Iterator[float]:
    """Pauses between attempts, in seconds, for ever: doubling, with full jitter.

    The jitter keeps a thousand clients of a restarted broker from coming in waves.
    """
    ceiling = BACKOFF_FIRST_S
    while True:
        yield random.uniform(ceiling / 2, ceiling)  # noqa: S311 (no secret hangs on it)
        ceiling = min(ceiling * 2, BACKOFF_MAX_S)


def retry_pause_s(failures: int) -> float:
    """The pause after that many failures in a row, as ``backoff`` gives it."""
    return random.uniform(0.5, 1.0) * min(BACKOFF_FIRST_S * 2 ** min(failures, 16), BACKOFF_MAX_S)  # noqa: S311


def frame_of(operation: Operation[object]) -> bytes:
    """The operation's frame.

    Raises:
        RecordTooLargeError: larger than the protocol allows; the broker would hang up.
    """
    frame = operation.to_frame().encode()
    if len(frame) > FRAME_BYTES_MAX:
        raise RecordTooLargeError(
            f"the request has {len(frame)} bytes and a frame holds {FRAME_BYTES_MAX}; send less at once"
        )
    return frame


def unavailable(endpoint: Endpoint, cause: object) -> BrokerUnavailableError:
    why = f" ({cause})" if str(cause) else ""
    return BrokerUnavailableError(
        f"no broker answers at {endpoint.host}:{endpoint.port}{why}; "
        "start it or correct the URL: the next call connects again"
    )


def lost(endpoint: Endpoint, cause: object) -> ConnectionLostError:
    why = f" ({cause})" if str(cause) else ""
    return ConnectionLostError(
        f"the connection to {endpoint.host}:{endpoint.port} broke before the answer came{why}; "
        "the request may have been carried out: the next call connects again"
    )


def timed_out(endpoint: Endpoint, timeout_s: float) -> RequestTimedOutError:
    return RequestTimedOutError(
        f"{endpoint.host}:{endpoint.port} did not answer within {timeout_s:g} s; it may still carry "
        "the request out"
    )
