"""Delay a connection whose client has exceeded a quota.

The delay ends early if quotas change.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from ..broker.quotas.limits import QuotaKey
from ..broker.quotas.machine import QuotaClient
from ..broker.quotas.manager import QuotaMeter, Quotas
from ..security.principal import Principal

# A connection is not read from for this long at most: one that is gone is noticed only by reading.
_DELAY_S_MAX = 600.0


class Delayable(Protocol):
    """A connection."""

    principal: Principal

    def pause_for_quota(self) -> None: ...
    def resume_after_quota(self) -> None: ...


class ClientMeters(NamedTuple):
    """Charges the bytes of one client."""

    principal: Principal
    client_id: str
    produce: QuotaMeter
    consume: QuotaMeter


class QuotaDelays:
    """Charges the requests of one connection, and delays it.

    ``close`` must be called when the connection is lost.
    """

    __slots__ = ("_connection", "_is_closed", "_loop", "_meters", "_protocol", "_timer", "quotas")

    def __init__(self, protocol: str, quotas: Quotas, connection: Delayable) -> None:
        self.quotas = quotas
        self._protocol = protocol
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        # When the connection goes on; None while it is not delayed.
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        # Those of the last client: a connection rarely has another one.
        self._meters: ClientMeters | None = None

    def meters(self, client_id: str = "") -> ClientMeters:
        """Return the meters of a client of this connection."""
        meters, principal = self._meters, self._connection.principal
        if meters is None or meters.principal is not principal or meters.client_id != client_id:
            client, quotas, protocol = self.client(client_id), self.quotas, self._protocol
            meters = self._meters = ClientMeters(
                principal,
                client_id,
                quotas.meter(protocol, QuotaKey.PRODUCE, client),
                quotas.meter(protocol, QuotaKey.CONSUME, client),
            )
        return meters

    def client(self, client_id: str = "") -> QuotaClient:
        return QuotaClient(self._connection.principal.name, client_id)

    def charge(self, meter: QuotaMeter, amount: float) -> int:
        """Count ``amount``; delay the connection if it is too much, return the delay.

        The delay is in ms.
        """
        delay_ms = meter.charge(amount)
        return self.delay(delay_ms) if delay_ms else 0

    def charge_time(self, client: QuotaClient, seconds: float) -> int:
        """Count the time that a request held the event loop; otherwise as ``charge``."""
        return self.delay(self.quotas.charge_time(self._protocol, client, seconds))

    def delay(self, delay_ms: int) -> int:
        """Read nothing more for ``delay_ms``, unless a longer delay holds; return ``delay_ms``."""
        if not delay_ms or self._is_closed:
            return delay_ms
        ends_s = self._loop.time() + min(delay_ms / 1000, _DELAY_S_MAX)
        timer = self._timer
        if timer is not None and timer.when() >= ends_s:
            return delay_ms
        if timer is None:
            self._connection.pause_for_quota()
            self.quotas.observe_end(self._end)
        else:
            timer.cancel()
        self._timer = self._loop.call_at(ends_s, self._end)
        return delay_ms

    def _end(self) -> None:
        self._forget()
        self._connection.resume_after_quota()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.quotas.forget(self._end)

    def close(self) -> None:
        self._is_closed = True
        self._forget()
