"""Charge a request of a short way to quotas.

``throttling`` does so for requests of the generic way.

A produce is answered with the wait that it causes. A fetch of a client that has to wait is left to the generic way,
which answers it without records.
"""

from __future__ import annotations

from ...broker.quotas.limits import QuotaKey
from ..quota_delays import QuotaDelays


class DirectCharge:
    """One request that begins now."""

    __slots__ = ("_begun_s", "_client", "_delay_ms", "_delays", "_seconds")

    def __init__(self, delays: QuotaDelays, client_id: str) -> None:
        self._delays = delays
        self._client = delays.client(client_id)
        self._delay_ms = 0
        # How long it has held the event loop; None if that is not limited.
        self._seconds: float | None = None
        quotas = delays.quotas
        self._begun_s = quotas.clock_s() if quotas.times_requests else None

    @property
    def must_wait(self) -> bool:
        """Whether the client may read nothing yet."""
        return self._delays.quotas.wait_ms(QuotaKey.CONSUME, self._client) > 0

    def fetch_bytes_max(self, wanted: int) -> int:
        """Return ``wanted``, or less if the quota allows less at once."""
        at_once_max = self._delays.quotas.at_once_max(QuotaKey.CONSUME, self._client)
        return wanted if at_once_max is None else min(wanted, at_once_max)

    def produced(self, frame_bytes: int) -> None:
        """Charge a produce that has been appended or refused.

        Now, because the next request may begin before this one is answered.
        """
        self._hold()
        self._delay_ms = self._delays.charge(QuotaKey.PRODUCE, self._client, frame_bytes)

    def fetched(self, records_bytes: int) -> int:
        """Charge a fetch; return its client's wait in ms."""
        self._hold()
        if records_bytes:
            self._delay_ms = self._delays.charge(QuotaKey.CONSUME, self._client, records_bytes)
        return self.finished()

    def finished(self) -> int:
        """Charge the time of the request.

        Return its client's wait in ms, for the response.
        """
        if self._seconds is None:
            return self._delay_ms
        return max(self._delay_ms, self._delays.charge_time(self._client, self._seconds))

    def _hold(self) -> None:
        if self._begun_s is not None:
            self._seconds = self._delays.quotas.clock_s() - self._begun_s
