"""What all transports share: the brokers of a URL, pauses between attempts, and errors."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ..config import Endpoint
from ..errors import (
    BrokerUnavailableError,
    ConnectionLostError,
    RecordTooLargeError,
    RequestTimedOutError,
)
from ..operations.base import Operation
from ..wire.framing import FRAME_BYTES_MAX

# Independent of ``random.seed``: programs with the same seed would all retry at the same moments.
_RANDOM = random.SystemRandom()
# The first retry goes unnoticed; the longest pause still feels prompt.
BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
# A connection that breaks this often on the same call does not break by chance.
REPETITIONS_MAX = 4


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
