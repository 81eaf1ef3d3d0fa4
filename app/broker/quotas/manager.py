"""Keep quotas in the catalog, and tell listeners how long a client has to wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ...cluster.catalog import ConfigRecord
from ...errors import InvalidRequest, QuotaExceeded
from ..catalog_thread import CatalogThread
from ..cluster import Cluster, SoloCluster
from .entities import ALL_ENTITIES, EntityFilter, QuotaEntity, address_text
from .limits import QuotaKey, check_quota
from .machine import Meter, QuotaClient, QuotaMachine
from .rate import Window

# The kind of the catalog's records.
QUOTA_KIND = "quota"
# All are held in memory.
_ENTITIES_MAX = 10_000


@dataclass(slots=True)
class Throttling:
    """Counts violations and waits per listener and kind of quota."""

    violations: int = 0
    delay_ms: int = 0


class Quotas:
    """All quotas of the broker.

    ``is_active`` is false while there are none: that is all a request has to look at then.
    ``times_requests``: the time of requests is limited, and must be measured. ``clock_s``
    measures it.
    """

    def __init__(
        self,
        *,
        catalog: CatalogThread,
        now_ms: Callable[[], int],
        clock_s: Callable[[], float],
        window: Window,
        cluster: Cluster | None = None,
    ) -> None:
        self._cluster = cluster or SoloCluster()
        self._cluster.observe("configs", self.refresh)
        self.is_active = False
        self.times_requests = False
        self.clock_s = clock_s
        self.throttling: dict[tuple[str, QuotaKey], Throttling] = {}
        self._catalog = catalog
        self.now_ms = now_ms
        self._machine = QuotaMachine(window)
        self._set: dict[QuotaEntity, Mapping[QuotaKey, float]] = {}
        self._changes = asyncio.Lock()
        # Called when waits end early.
        self._waiting: set[Callable[[], object]] = set()
        self._is_closing = False

    async def open(self) -> None:
        """Load all quotas."""
        await self.refresh()

    async def refresh(self) -> None:
        """Take over what is stored, which another broker may have changed.

        Waits go on if no quota has changed: this is also called when a topic has, or this broker changed a quota.
        """
        async with self._changes:
            records = await self._catalog.run(lambda catalog: catalog.configs())
            stored: dict[QuotaEntity, Mapping[QuotaKey, float]] = {
                QuotaEntity.from_text(record.entity): {
                    QuotaKey(name): float(value) for name, value in record.configs.items()
                }
                for record in records
                if record.kind == QUOTA_KIND
            }
            if stored != self._set:
                self._set = stored
                self._apply()

    def begin_close(self) -> None:
        """End all waits, because the broker is shutting down."""
        self._is_closing = True
        self._end_waits()

    # ── quotas ──

    def list(self, wanted: EntityFilter = ALL_ENTITIES) -> list[tuple[QuotaEntity, Mapping[QuotaKey, float]]]:
        """Return the quotas of the entities that match ``wanted``, in a stable order."""
        found = [(entity, values) for entity, values in self._set.items() if wanted.matches(entity)]
        return sorted(found, key=lambda pair: str(pair[0]))

    async def alter(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> Mapping[QuotaKey, float]:
        """Set quotas of ``entity``, and remove those whose value is None; return all that it has then.

        When this returns, they are in effect and survive a loss of power.

        Raises:
            InvalidRequest: nothing was changed.
        """
        await self._cluster.refresh()
        async with self._changes:
            values = dict(self._set.get(entity, {}))
            for name, value in changes.items():
                key = check_quota(entity, name, value)
                if value is None:
                    values.pop(key, None)
                else:
                    values[key] = value
            if values and entity not in self._set and len(self._set) >= _ENTITIES_MAX:
                raise InvalidRequest(
                    f"{_ENTITIES_MAX} entities have quotas, which is the limit; remove those of one first"
                )
            if validate_only or values == self._set.get(entity, {}):
                return MappingProxyType(values)
            record = ConfigRecord(
                kind=QUOTA_KIND,
                entity=str(entity),
                configs={key.value: repr(value) for key, value in values.items()},
            )
            await self._catalog.run(lambda catalog: catalog.set_configs(record))
            if values:
                self._set[entity] = MappingProxyType(values)
            else:
                self._set.pop(entity, None)
            self._apply()
            return MappingProxyType(values)

    def _apply(self) -> None:
        self._machine.set_quotas(self._set)
        self.is_active = bool(self._set)
        self.times_requests = self._machine.has(QuotaKey.REQUEST)
        self._end_waits()

    # ── use ──

    @property
    def remembered(self) -> int:
        """Clients whose use is remembered."""
        return len(self._machine)

    def charge(self, protocol: str, key: QuotaKey, client: QuotaClient, amount: float) -> int:
        """Count ``amount``, and return how long the client has to wait, in ms."""
        return self.noted(protocol, key, self._machine.charge(key, client, amount, self.now_ms()))

    def noted(self, protocol: str, key: QuotaKey, delay_ms: int) -> int:
        """Note a delay that was ordered; return how long the client has to wait, in ms."""
        self._note(protocol, key, delay_ms)
        return 0 if self._is_closing else delay_ms

    def charge_time(self, protocol: str, client: QuotaClient, seconds: float) -> int:
        """Count the time that a request held the event loop; otherwise as ``charge``."""
        return self.charge(protocol, QuotaKey.REQUEST, client, seconds * 100)

    def wait_ms(self, key: QuotaKey, client: QuotaClient) -> int:
        """Return how long the client still has to wait after what was charged before."""
        return 0 if self._is_closing else self._machine.wait_ms(key, client, self.now_ms())

    def check(self, protocol: str, key: QuotaKey, client: QuotaClient) -> None:
        """Raise QuotaExceeded while the client has to wait."""
        wait_ms = self.wait_ms(key, client)
        if wait_ms:
            self._note(protocol, key, wait_ms)
            raise QuotaExceeded(key.value, retry_after_ms=wait_ms)

    def at_once_max(self, key: QuotaKey, client: QuotaClient) -> int | None:
        """Return how much one request should use at most; None without a quota."""
        return self._machine.at_once_max(key, client)

    def meter(self, protocol: str, key: QuotaKey, client: QuotaClient) -> QuotaMeter:
        """Return what charges the requests of one client, which a connection keeps."""
        return QuotaMeter(self, protocol, key, client, self._machine.meter(key, client))

    def connect(self, protocol: str, host: str) -> int:
        """Count a connection from ``host``; return 0, or for how many ms it is refused."""
        if not self.is_active:
            return 0
        delay_ms = self._machine.connect(address_text(host), self.now_ms())
        self._note(protocol, QuotaKey.CONNECTION, delay_ms)
        return delay_ms

    def _note(self, protocol: str, key: QuotaKey, delay_ms: int) -> None:
        if delay_ms:
            noted = self.throttling.setdefault((protocol, key), Throttling())
            noted.violations += 1
            noted.delay_ms += delay_ms

    # ── waits ──

    def observe_end(self, ended: Callable[[], object]) -> None:
        """Call ``ended`` when waits end early: quotas have changed, or the broker is closing."""
        self._waiting.add(ended)

    def forget(self, ended: Callable[[], object]) -> None:
        self._waiting.discard(ended)

    async def pause(self, delay_ms: int) -> None:
        """Wait for ``delay_ms``, or until waits end early."""
        over = asyncio.Event()
        self.observe_end(over.set)
        try:
            async with asyncio.timeout(delay_ms / 1000):
                await over.wait()
        except TimeoutError:
            pass
        finally:
            self.forget(over.set)

    def _end_waits(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for ended in waiting:
            ended()


class QuotaMeter:
    """Charges many requests of one client; each method is as that of ``Quotas``."""

    __slots__ = ("_quotas", "client", "key", "meter", "protocol")

    def __init__(
        self, quotas: Quotas, protocol: str, key: QuotaKey, client: QuotaClient, meter: Meter
    ) -> None:
        self.protocol = protocol
        self.key = key
        self.client = client
        self.meter = meter
        self._quotas = quotas

    def charge(self, amount: float) -> int:
        """Count ``amount``, and return how long the client has to wait, in ms."""
        quotas = self._quotas
        delay_ms = self.meter.charge(amount, quotas.now_ms())
        return quotas.noted(self.protocol, self.key, delay_ms) if delay_ms else 0

    def at_once_max(self) -> int | None:
        """Return how much one request should use at most; None without a quota."""
        return self.meter.bounds()[1]
