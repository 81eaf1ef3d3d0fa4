"""What every client has used, and how long it has to wait.

Pure: every call gets the time.

Amounts are charged after the fact, so a single request may exceed a quota by any factor;
the wait that follows makes up for it. Clients that have used nothing for a while are
forgotten, and so are those that were silent for longest once there are too many.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from .entities import QuotaEntity
from .limits import Limit, QuotaKey, limits_by_key
from .rate import SampledRate, Window

# Clients remembered.
USES_MAX = 10_000
# Clients whose quotas are known without a search; more begin anew.
_CLIENTS_MAX = 10_000
# What a response can carry.
_DELAY_MS_MAX = 2**31 - 1


class QuotaClient(NamedTuple):
    """Who uses something.

    The name of the principal, and the name that the client gave itself.
    """

    user: str
    client_id: str = ""


class _Use:
    """What the clients that share one quota have used."""

    __slots__ = ("rate", "seen_ms", "until_ms")

    def __init__(self, window: Window) -> None:
        self.rate = SampledRate(window)
        self.seen_ms = 0
        # When the last wait ends.
        self.until_ms = 0


class QuotaMachine:
    """All quotas, and the uses that count for them.

    ``now_ms`` is of a monotonic clock.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self._full_ms = window.full_ms
        self._limits = limits_by_key({})
        # What ``of_client`` returned since the quotas changed.
        self._found: dict[tuple[QuotaKey, QuotaClient], Limit | None] = {}
        # The use that was charged last is last.
        self._uses: OrderedDict[tuple[QuotaKey, tuple[str | None, str | None]], _Use] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of uses that are remembered."""
        return len(self._uses)

    def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> None:
        """Replace all quotas. Amounts used still count; waits that were ordered end."""
        self._limits = limits_by_key(quotas)
        self._found.clear()
        for use in self._uses.values():
            use.until_ms = 0

    def has(self, key: QuotaKey) -> bool:
        """Return whether anybody has a quota of this kind."""
        return bool(self._limits[key])

    # ── clients ──

    def charge(self, key: QuotaKey, client: QuotaClient, amount: float, now_ms: int) -> int:
        """Count ``amount``; return the client's wait before its next request, in ms.

        ``amount`` is in bytes, and for ``REQUEST`` the percentage of a second that a request took.
        """
        limit = self._limit(key, client)
        if limit is None:
            return 0
        use = self._use(key, limit, now_ms)
        use.rate.record(amount, now_ms)
        above_ms = use.rate.delay_ms(limit.value, now_ms)
        if not above_ms:
            return 0
        delay_ms = _delay_ms(above_ms)
        if key is QuotaKey.REQUEST:
            delay_ms = min(delay_ms, self.window.sample_ms)
        use.until_ms = max(use.until_ms, now_ms + delay_ms)
        return delay_ms

    def wait_ms(self, key: QuotaKey, client: QuotaClient, now_ms: int) -> int:
        """Return how long the last wait that was ordered still lasts."""
        limit = self._limit(key, client)
        use = None if limit is None else self._uses.get((key, limit.scope))
        return 0 if use is None else max(0, use.until_ms - now_ms)

    def at_once_max(self, key: QuotaKey, client: QuotaClient) -> int | None:
        """Return how much one request should use at most; None without a quota."""
        limit = self._limit(key, client)
        return None if limit is None else max(1, int(limit.value * self._full_ms / 1000))

    def _limit(self, key: QuotaKey, client: QuotaClient) -> Limit | None:
        """Return the quota that holds for ``client``: a look-up, unless it is new."""
        found = self._found
        name = key, client
        if name in found:
            return found[name]
        if len(found) >= _CLIENTS_MAX:
            found.clear()
        limit = found[name] = self._limits[key].of_client(*client)
        return limit

    # ── connections ──

    def connect(self, address: str, now_ms: int) -> int:
        """Count a connection and return 0, or return the delay in ms and do not count it."""
        limit = self._limits[QuotaKey.CONNECTION].of_address(address)
        if limit is None:
            return 0
        use = self._use(QuotaKey.CONNECTION, limit, now_ms)
        use.rate.record(1, now_ms)
        delay_ms = _delay_ms(use.rate.delay_ms(limit.value, now_ms))
        if delay_ms:
            use.rate.record(-1, now_ms)
        return min(delay_ms, self.window.sample_ms)

    # ── uses ──

    def _use(self, key: QuotaKey, limit: Limit, now_ms: int) -> _Use:
        name = key, limit.scope
        use = self._uses.get(name)
        if use is None:
            self._forget(now_ms)
            use = self._uses[name] = _Use(self.window)
        else:
            self._uses.move_to_end(name)
        use.seen_ms = now_ms
        return use

    def _forget(self, now_ms: int) -> None:
        """Forget uses that no longer count, and make room for one more."""
        while self._uses:
            name, oldest = next(iter(self._uses.items()))
            is_over = now_ms - oldest.seen_ms >= self.window.total_ms and now_ms >= oldest.until_ms
            if not is_over and len(self._uses) < USES_MAX:
                return
            del self._uses[name]


def _delay_ms(above_ms: float) -> int:
    return min(_DELAY_MS_MAX, round(above_ms))
