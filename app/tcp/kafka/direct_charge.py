"""Charge a request of a fast path to quotas.

``throttling`` does so for requests of the generic path.

A produce is answered with the wait that it causes. A fetch of a client that has to wait is left to the generic path,
which answers it without records.
"""

from __future__ import annotations

from ...security.principal import Principal
from ..quota_delays import QuotaDelays


class DirectCharge:
    """The requests of one client of a connection, one after the other.

    All of a request that counts happens before the next one begins. ``consume`` is the quota of fetches.
    """

    __slots__ = ("_begun_s", "_delays", "_produce", "_quotas", "client_id", "consume", "principal")

    def __init__(self, delays: QuotaDelays, client_id: str, principal: Principal) -> None:
        self.client_id = client_id
        self.principal = principal
        self._delays = delays
        self._quotas = delays.quotas
        meters = delays.meters(client_id)
        self._produce, self.consume = meters.produce, meters.consume
        self._begun_s = 0.0

    def begin(self) -> None:
        """Begin a request; needed only while the time of requests is limited."""
        self._begun_s = self._quotas.clock_s()

    def produced(self, frame_bytes: int) -> int:
        """Charge a produce that has been appended or refused.

        Return its client's wait in ms.

        Now, because the next request may begin before this one is answered.
        """
        delay_ms = self._produce.charge(frame_bytes)
        return self._finished(delay_ms) if delay_ms or self._quotas.times_requests else 0

    def readable_bytes(self, bytes_max: int) -> int | None:
        """Return how many of ``bytes_max`` bytes of records a fetch may bring now.

        None if its client has to wait.
        """
        free = self.consume.meter.free_bytes_max(bytes_max)
        return self.consume.bytes_max(bytes_max) if free is None else free

    def fetched(self, records_bytes: int) -> int:
        """Charge a fetch; return its client's wait in ms."""
        delay_ms = self.consume.charge(records_bytes) if records_bytes else 0
        return self._finished(delay_ms) if delay_ms or self._quotas.times_requests else 0

    def _finished(self, delay_ms: int) -> int:
        """Charge the time of the request, and delay the connection.

        Return the wait for the response.
        """
        delays, quotas = self._delays, self._quotas
        delays.delay(delay_ms)
        if not quotas.times_requests:
            return delay_ms
        seconds = quotas.clock_s() - self._begun_s
        return max(delay_ms, delays.charge_time(self._produce.client, seconds))
