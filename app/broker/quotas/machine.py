"""Tracks the usage of every client, and how long it must wait.

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
# Clients whose quotas are known without a search; beyond that, the search starts over.
_CLIENTS_MAX = 10_000
# What a response can carry.
_DELAY_MS_MAX = 2**31 - 1


class QuotaClient(NamedTuple):
    """The client that is charged: the name of its principal, and its client id."""

    user: str
    client_id: str = ""


class _Use:
    """Usage of the clients that share one quota."""

    __slots__ = ("is_forgotten", "rate", "seen_ms", "until_ms")

    def __init__(self, window: Window) -> None:
        self.rate = SampledRate(window)
        self.seen_ms = 0
        # When the last wait ends.
        self.until_ms = 0
        # The machine no longer has room for it: what is charged next starts from zero.
        self.is_forgotten = False


class QuotaMachine:
    """All quotas, and the uses that count for them; ``now_ms`` is of a monotonic clock."""

    def __init__(self, window: Window) -> None:
        self.window = window
        # How often the quotas have changed.
        self.generation = 0
        self._full_ms = window.full_ms
        self._limits = limits_by_key({})
        # What ``of_client`` returned since the quotas changed.
        self._found: dict[tuple[QuotaKey, QuotaClient], Limit | None] = {}
        # The use that was charged last is last; meters move theirs with each sample only.
        self._uses: OrderedDict[tuple[QuotaKey, tuple[str | None, str | None]], _Use] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of uses that are remembered."""
        return len(self._uses)

    def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[QuotaKey, float]]) -> None:
        """Replace all quotas. Amounts used still count; waits that were ordered end."""
        self._limits = limits_by_key(quotas)
        self.generation += 1
        self._found.clear()
        for use in self._uses.values():
            use.until_ms = 0

    def has(self, key: QuotaKey) -> bool:
        """Return whether any client has a quota of this kind."""
        return bool(self._limits[key])

    # ── clients ──

    def charge(self, key: QuotaKey, client: QuotaClient, amount: float, now_ms: int) -> int:
        """Count ``amount``; return the client's wait before its next request, in ms.

        ``amount`` is in bytes, and for ``REQUEST`` the percentage of a second that a request took.
        """
        limit = self.limit(key, client)
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
        limit = self.limit(key, client)
        use = None if limit is None else self.use(key, limit)
        return 0 if use is None else max(0, use.until_ms - now_ms)

    def at_once_max(self, key: QuotaKey, client: QuotaClient) -> int | None:
        """Return how much one request should use at most; None without a quota."""
        limit = self.limit(key, client)
        return None if limit is None else max(1, int(limit.value * self._full_ms / 1000))

    def meter(self, key: QuotaKey, client: QuotaClient) -> Meter:
        """Return what charges many amounts of one client."""
        return Meter(self, key, client)

    def use(self, key: QuotaKey, limit: Limit) -> _Use | None:
        """Return the use of all that share ``limit``; None if it is not remembered."""
        return self._uses.get((key, limit.scope))

    def limit(self, key: QuotaKey, client: QuotaClient) -> Limit | None:
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
            oldest.is_forgotten = True


class Meter:
    """Charges the amounts of one client as ``QuotaMachine.charge`` does, at less cost.

    It keeps what the machine looks up: the quota until quotas change, and the use until that is forgotten.
    """

    __slots__ = ("_at_once_max", "_client", "_generation", "_key", "_limit", "_machine", "_use")

    def __init__(self, machine: QuotaMachine, key: QuotaKey, client: QuotaClient) -> None:
        self._machine = machine
        self._key = key
        self._client = client
        self._generation = -1
        self._limit: Limit | None = None
        self._at_once_max: int | None = None
        self._use: _Use | None = None

    def charge(self, amount: float, now_ms: int) -> int:
        """Count ``amount``; return the client's wait before its next request, in ms."""
        machine = self._machine
        if self._generation != machine.generation:
            self._look_up()
        limit, use = self._limit, self._use
        if limit is None:
            return 0
        if use is not None and not use.is_forgotten and use.rate.record_within(amount, limit.value, now_ms):
            return 0
        delay_ms = machine.charge(self._key, self._client, amount, now_ms)
        self._use = machine.use(self._key, limit)
        return delay_ms

    def bounds(self) -> tuple[int, int | None]:
        """Return when the last wait ends, and how much one request should use at most.

        0 if there was no wait; None without a quota.
        """
        if self._generation != self._machine.generation:
            self._look_up()
        use = self._use
        if use is None or use.is_forgotten:
            if self._limit is None:
                return 0, None
            use = self._use = self._machine.use(self._key, self._limit)
        return 0 if use is None else use.until_ms, self._at_once_max

    def _look_up(self) -> None:
        machine = self._machine
        self._generation = machine.generation
        self._limit = machine.limit(self._key, self._client)
        self._at_once_max = machine.at_once_max(self._key, self._client)
        self._use = None


def _delay_ms(above_ms: float) -> int:
    return min(_DELAY_MS_MAX, round(above_ms))
