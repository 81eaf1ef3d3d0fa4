"""Charge a request of the fast path of Produce to quotas.

``throttling`` does so for all other requests.
"""

from __future__ import annotations

from ...security.principal import Principal
from ..quota_delays import QuotaDelays


class DirectCharge:
    """The requests of one client of a connection, one after the other.

    All of a request that counts happens before the next one begins.
    """

    __slots__ = ("_begun_s", "_delays", "_produce", "_quotas", "client_id", "principal")

    def __init__(self, delays: QuotaDelays, client_id: str, principal: Principal) -> None:
        self.client_id = client_id
        self.principal = principal
        self._delays = delays
        self._quotas = delays.quotas
        self._produce = delays.meters(client_id).produce
        self._begun_s = 0.0

    def begin(self) -> None:
        """Begin a request; needed only while the time of requests is limited."""
        self._begun_s = self._quotas.clock_s()

    def produced(self, frame_bytes: int) -> int:
        """Charge a produce that has been appended or refused.

        Return its client's wait in ms.

        Now, because the next request may begin before this one is answered.
        """
        delays, quotas = self._delays, self._quotas
        delay_ms = delays.charge(self._produce, frame_bytes)
        if not quotas.times_requests:
            return delay_ms
        seconds = quotas.clock_s() - self._begun_s
        return max(delay_ms, delays.charge_time(self._produce.client, seconds))
