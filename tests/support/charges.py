"""Notes what is charged to quotas, on a clock that stands still unless a test moves it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

from app.broker.quotas.entities import QuotaEntity
from app.broker.quotas.limits import QuotaKey
from app.broker.quotas.machine import QuotaClient
from app.broker.quotas.manager import QuotaMeter, Quotas

# Of all users.
EVERYBODY = QuotaEntity.of([("user", None)])
Charge = tuple[str, QuotaKey, QuotaClient, float]


@dataclass(slots=True)
class Charges:
    """What was charged; ``now_ms`` is the time of the quotas."""

    now_ms: int = 0
    noted: list[Charge] = field(default_factory=list[Charge])


@contextmanager
def noted_charges(quotas: Quotas) -> Generator[Charges]:
    """Note the charges to ``quotas``. Requests take no time, and connections are delayed for a moment at most."""
    charges, charge, charge_by_meter = Charges(), quotas.charge, QuotaMeter.charge

    def noted(protocol: str, key: QuotaKey, client: QuotaClient, amount: float) -> int:
        charges.noted.append((protocol, key, client, amount))
        return charge(protocol, key, client, amount)

    def noted_by_meter(meter: QuotaMeter, amount: float) -> int:
        charges.noted.append((meter.protocol, meter.key, meter.client, amount))
        return charge_by_meter(meter, amount)

    def now_ms() -> int:
        return charges.now_ms

    def stopped_s() -> float:
        return 0.0

    with (
        mock.patch.object(quotas, "charge", noted),
        mock.patch.object(QuotaMeter, "charge", noted_by_meter),
        mock.patch.object(quotas, "now_ms", now_ms),
        mock.patch.object(quotas, "clock_s", stopped_s),
        mock.patch("app.tcp.quota_delays._DELAY_S_MAX", 0.001),
    ):
        yield charges


async def set_quotas(quotas: Quotas, values: Mapping[str, float]) -> None:
    """Set quotas for all users; none if ``values`` is empty."""
    if values:
        await quotas.alter(EVERYBODY, values)
