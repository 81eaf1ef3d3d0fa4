"""What every route knows: the broker, its groups, the settings, and what is counted beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from prometheus_client.registry import Collector
from starlette.requests import Request

from ..broker.broker import Broker
from ..groups.services import Groups
from ..monitor.sampler import Sampler
from ..monitor.verifications import Verifications
from ..query.searching import SEARCHES_MAX, SearchTotals
from ..query.tailing import FILTERED_TAILS_MAX
from ..settings import Settings
from .stream_slots import StreamSlots


class CdcView(Protocol):
    """What the HTTP listener shows of the connectors to databases."""

    @property
    def collector(self) -> Collector: ...
    def connectors(self) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class ApiState:
    broker: Broker
    groups: Groups
    settings: Settings
    # What connectors to databases say of themselves.
    connectors: Callable[[], Sequence[Mapping[str, Any]]]
    sampler: Sampler
    searches: SearchTotals = field(default_factory=SearchTotals)
    search_slots: StreamSlots = field(default_factory=lambda: StreamSlots("searches", SEARCHES_MAX))
    filtered_tail_slots: StreamSlots = field(
        default_factory=lambda: StreamSlots("live tails with conditions", FILTERED_TAILS_MAX)
    )
    verifications: Verifications = field(default_factory=Verifications)


def api_state(request: Request) -> ApiState:
    return cast("ApiState", request.app.state.stele)


def broker_of(request: Request) -> Broker:
    return api_state(request).broker


def groups_of(request: Request) -> Groups:
    return api_state(request).groups
