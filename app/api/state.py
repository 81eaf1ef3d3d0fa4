"""Hold the state that all routes share: the broker, its groups, the settings and counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from prometheus_client.registry import Collector
from starlette.requests import Request

from ..broker.broker import Broker
from ..broker.mirrors import MirrorDefinition
from ..broker.producing.copies import CutCopy, EndedTransaction
from ..groups.services import Groups, GroupServices
from ..monitor.loop_probe import LoopProbe
from ..monitor.sampler import Sampler
from ..monitor.verifications import Verifications
from ..query.searching import SEARCHES_MAX, SearchTotals
from ..query.table import TABLES_MAX
from ..query.tail_reads import TailReads
from ..query.tailing import FILTERED_TAILS_MAX
from ..registry.values import SchemaValues
from ..security.acls import Acls
from ..security.policy import ListenerSecurity
from ..settings import Settings
from ..sql.statements import SqlStatements
from ..storage.replica.status import ReplicaStatus
from ..transactions.services import Transactions
from .records.page import PageRoom
from .records.stream_slots import StreamSlots


class CdcView(Protocol):
    """The state of the CDC connectors, for the API and the metrics; ``app.cdc.supervisor`` documents it."""

    @property
    def collector(self) -> Collector: ...
    @property
    def requestable(self) -> tuple[str, str] | None: ...
    def connectors(self) -> Sequence[Mapping[str, Any]]: ...


class MirrorsView(Protocol):
    """The mirrors, for the API and the metrics; ``app.mirrors.supervisor`` documents them."""

    @property
    def collector(self) -> Collector: ...
    def list(self) -> Sequence[Mapping[str, Any]]: ...
    def get(self, name: str) -> Mapping[str, Any]: ...
    async def put(self, definition: MirrorDefinition) -> None: ...
    async def delete(self, name: str) -> None: ...
    async def promote(
        self, name: str, topic_name: str | None = None
    ) -> tuple[Sequence[tuple[str, Sequence[EndedTransaction]]], str]: ...
    async def truncate(self, name: str, topic_name: str | None = None) -> Sequence[CutCopy]: ...


class IcebergCatalogView(Protocol):
    """The catalog of the Iceberg tables; ``app.iceberg.catalog`` documents it."""

    @property
    def client_properties(self) -> Mapping[str, str]: ...
    async def list_tables(self) -> list[str]: ...
    async def load(self, name: str) -> tuple[str, bytes] | None: ...


class IcebergView(Protocol):
    """The topics that are tables; ``app.iceberg.supervisor`` documents it."""

    @property
    def collector(self) -> Collector: ...
    async def status(self) -> Mapping[str, Any]: ...
    def status_of(self, topic: str) -> Mapping[str, Any]: ...
    @property
    def catalog(self) -> IcebergCatalogView: ...


class ReplicaView(Protocol):
    """The state of the replica in a bucket, for the API and the metrics."""

    @property
    def status(self) -> ReplicaStatus: ...


@dataclass(frozen=True, slots=True)
class ApiState:
    """State of the HTTP listener; see ``api_state``."""

    broker: Broker
    groups: GroupServices
    transactions: Transactions
    settings: Settings
    sampler: Sampler
    # None if the application knows of no connectors.
    cdc: CdcView | None = None
    security: ListenerSecurity | None = None
    # None if access rules are not checked.
    acls: Acls | None = None
    # None if there is no replica.
    replica: ReplicaView | None = None
    # None if no keys and values are decoded or encoded.
    schemas: SchemaValues | None = None
    # None if the broker runs none.
    mirrors: MirrorsView | None = None
    # None if the application runs no SQL.
    sql: SqlStatements | None = None
    # None if the application knows of no tables.
    iceberg: IcebergView | None = None
    searches: SearchTotals = field(default_factory=SearchTotals)
    search_slots: StreamSlots = field(default_factory=lambda: StreamSlots("searches", SEARCHES_MAX))
    filtered_tail_slots: StreamSlots = field(
        default_factory=lambda: StreamSlots("live tails with conditions", FILTERED_TAILS_MAX)
    )
    table_slots: StreamSlots = field(default_factory=lambda: StreamSlots("table snapshots", TABLES_MAX))
    sql_slots: StreamSlots = field(init=False)
    tail_reads: TailReads = field(init=False)
    page_room: PageRoom = field(default_factory=PageRoom)
    verifications: Verifications = field(default_factory=Verifications)
    loop_probe: LoopProbe = field(default_factory=LoopProbe)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tail_reads", TailReads(self.broker))
        slots = StreamSlots("SQL statements", self.settings.sql_statements_max)
        object.__setattr__(self, "sql_slots", slots)


def api_state(request: Request) -> ApiState:
    """Return the state of the application that serves ``request``."""
    return cast("ApiState", request.app.state.stele)


def broker_of(request: Request) -> Broker:
    """Return the broker of the application that serves ``request``."""
    return api_state(request).broker


def groups_of(request: Request) -> GroupServices:
    """Return the consumer groups of the application that serves ``request``."""
    return api_state(request).groups


def group_of(request: Request) -> Groups:
    """Return what serves the group that the path names."""
    return groups_of(request).of(str(request.path_params["group"]))


def transactions_of(request: Request) -> Transactions:
    """Return the transactions of the application that serves ``request``."""
    return api_state(request).transactions
