"""Builds the parts below the listeners: a standalone broker, or a member of a cluster.

A broker on its own has its catalog, its groups and its records in its data directory. One with shared storage
has all of them in PostgreSQL and an object store; its directory holds a lock, and who it was last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from stele.wire.isolation_level import IsolationLevel

from .broker.broker import Broker
from .broker.cluster import SharedCluster
from .broker.listeners import Endpoint
from .broker.surveys import Surveys
from .clock import SystemClock
from .cluster.catalog import Catalog
from .cluster.group_shards import lease_of_shard
from .cluster.group_store import GroupStore
from .cluster.membership import Member, MemberEndpoint
from .cluster.sqlite.catalog import SqliteCatalog
from .cluster.sqlite.groups import SqliteGroupStore
from .errors import StorageFull, StorageLimitReached
from .groups.coordinator import GroupCoordinator
from .groups.ended_elsewhere import AskEnded
from .groups.leases.manager import LeaseManager
from .groups.offsets_topic.sharded import ShardedOffsetsTopic
from .groups.offsets_topic.standalone import OffsetsTopic
from .groups.services import Groups, GroupServices
from .groups.shard_lease import ShardLease
from .groups.shards import GroupShards
from .groups.share.dead_letter_writer import DeadLetterWriter
from .groups.share_queue import ShareQueue
from .groups.table import GroupTable
from .network.admission import open_files_for_partitions, open_files_limit
from .security.service import SecurityStores
from .security.tls.peer_tls import PeerTls
from .settings import Settings
from .storage.cleaner import CleanerOptions
from .storage.disk.files import DISK_FULL, LIMIT_REACHED, RealFiles
from .storage.embedded import EmbeddedEngine, EngineOptions
from .storage.engine import LogEngine
from .storage.segments.remote_segments import RemoteLogs
from .storage.setup_problems import InvalidStorage
from .transactions.coordinator import TransactionCoordinator
from .transactions.services import Transactions, open_services, open_shared_services

if TYPE_CHECKING:
    from .broker.forwarding import Forwarder
    from .shared_stores import SharedStores

logger = logging.getLogger(__name__)

CATALOG = "metadata.sqlite"
GROUPS = "groups.sqlite"
# In the data directory of a broker with shared storage: the incarnation of its last start.
INCARNATION = "incarnation"
# When the listeners are up: after a crash the first checkpoint writes a file for each partition, and so much work
# beside the rest of the start would double that.
_FIRST_CHECKPOINT_MS = 3_000


# Files of sealed segments that readers keep open, and the part of what the process may open that they are at most.
_OPEN_SEGMENTS_MAX = 512
_READ_FILES_SHARE = 16


def embedded_engine(settings: Settings, remote_logs: RemoteLogs | None = None) -> EmbeddedEngine:
    """The engine that keeps its files in the data directory, on this machine.

    ``remote_logs`` reads what is in the bucket of a replica alone.
    """
    open_files_max = open_files_limit()
    return EmbeddedEngine(
        RealFiles(),
        settings.data_dir.absolute(),
        clock=SystemClock(),
        remote_logs=remote_logs,
        options=EngineOptions(
            flush_interval_ms=settings.log_flush_interval_ms,
            checkpoint_interval_ms=settings.log_checkpoint_interval_ms,
            first_checkpoint_ms=min(_FIRST_CHECKPOINT_MS, settings.log_checkpoint_interval_ms),
            retention_interval_ms=settings.log_retention_check_interval_ms,
            open_segments_max=min(_OPEN_SEGMENTS_MAX, max(1, open_files_max // _READ_FILES_SHARE)),
            open_logs_max=open_files_for_partitions(open_files_max),
            table_memory_bytes_max=settings.table_memory_bytes_max,
            cleaner=CleanerOptions(
                is_enabled=settings.log_cleaner_enable,
                dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
                bytes_per_s=settings.log_cleaner_io_max_bytes_per_second,
                interval_ms=settings.log_cleaner_backoff_ms,
                uses_process=True,
            ),
        ),
    )


@dataclass(frozen=True, slots=True)
class SharedParts:
    """The PostgreSQL stores of a broker with shared storage, and its cluster."""

    settings: Settings
    engine: LogEngine
    incarnation: UUID
    cluster: SharedCluster
    stores: SharedStores

    def security_stores(self, data_dir: Path) -> SecurityStores:
        return SecurityStores(self.stores.credentials, self.stores.acls, self.cluster, data_dir)

    async def join(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Register the broker. Raises ``BrokerIdTaken``, ``StorageUnavailable``."""
        path = self.settings.data_dir.absolute() / INCARNATION
        member = Member(
            broker_id=self.settings.broker_id,
            incarnation=self.incarnation,
            rack=self.settings.broker_rack,
            session_timeout_ms=self.settings.broker_session_timeout_ms,
            endpoints={name: MemberEndpoint(*endpoint) for name, endpoint in endpoints.items()},
        )
        # The data directory is locked, so its last broker has ended, however it did.
        await self.cluster.join(member, previous=_incarnation_in(path))
        path.write_text(str(self.incarnation))

    def forwarder(self, tls: PeerTls | None) -> Forwarder:
        """Return what forwards group requests to their coordinator.

        ``tls`` is None if the HTTP listeners have no TLS.
        """
        # It takes a tenth of a second to import, which a broker on its own need not wait for.
        from .broker.forwarding import Forwarder

        return Forwarder(
            self.cluster,
            broker_id=self.settings.broker_id,
            tls=None if tls is None else lambda: tls.context,
        )

    async def leave(self) -> None:
        await self.cluster.leave()

    async def close(self) -> None:
        await self.cluster.close()
        self.stores.close()


def _incarnation_in(path: Path) -> UUID | None:
    try:
        return UUID(path.read_text())
    except (OSError, ValueError):
        return None


def open_shared(settings: Settings, displaced: Callable[[], object]) -> SharedParts:
    """Build what brokers share; nothing is connected yet.

    ``displaced``: see ``SharedCluster``.

    Raises:
        InvalidStorage: the settings do not say where, or the extra is not installed.
    """
    if settings.postgres_url is None:
        raise InvalidStorage(
            "storage=shared needs postgres_url, for example postgresql://stele@db.example.com/stele"
        )
    try:
        from .shared_stores import SharedStores
        from .storage.shared.compactor import CompactorOptions
        from .storage.shared.options import SharedOptions
        from .storage.shared.postgres_engine import PostgresEngine, SharedStorage
        from .storage.shared.upkeep import UpkeepOptions
    except ImportError as error:
        raise InvalidStorage(
            f"storage=shared needs the extra cluster ({error}): pip install 'stele-broker[cluster]'"
        ) from error
    url = settings.postgres_url.get_secret_value()
    incarnation, clock = uuid4(), SystemClock()
    storage = SharedStorage(
        postgres_url=url, object_store=settings.object_store, linger_ms=settings.shared_linger_ms
    )
    options = SharedOptions(
        buffered_bytes_max=settings.shared_buffer_bytes_max,
        cache_bytes_max=settings.shared_cache_bytes_max,
        table_memory_bytes_max=settings.table_memory_bytes_max,
        upkeep=UpkeepOptions(
            retention_interval_ms=settings.log_retention_check_interval_ms,
            producer_expiration_ms=settings.producer_id_expiration_ms,
        ),
        compaction=CompactorOptions(
            is_enabled=settings.log_cleaner_enable,
            interval_ms=settings.log_cleaner_backoff_ms,
            dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
            bytes_per_s=settings.log_cleaner_io_max_bytes_per_second,
        ),
    )
    try:
        engine = PostgresEngine(
            RealFiles(),
            settings.data_dir.absolute(),
            storage=storage,
            incarnation=incarnation,
            clock=clock,
            options=options,
        )
        stores = SharedStores(engine.pool, incarnation=incarnation)
    except ValueError as error:
        raise InvalidStorage(str(error)) from error
    surveys = Surveys(stores.surveyor, stores.traffic, clock)
    cluster = SharedCluster(stores.membership, clock=clock, displaced=displaced, surveys=surveys)
    cluster.observe_history(engine.adopt)
    cluster.observe_leader_epoch(engine.show_epoch)
    return SharedParts(settings, engine, incarnation, cluster, stores)


async def open_broker(
    settings: Settings, shared: SharedParts | None = None, engine: LogEngine | None = None
) -> Broker:
    """A broker over the data directory of ``settings``, its partitions recovered; or over what is shared.

    ``engine`` is that of the directory; there is a new one without it.

    Raises:
        DataDirLocked: another broker has the directory.
        StorageError, OSError: the disk does not allow it, or shared storage cannot be reached.
    """
    clock = SystemClock()
    path = settings.data_dir.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    if engine is None:
        engine = embedded_engine(settings) if shared is None else shared.engine
    start = await engine.open()
    if not start.was_clean and not start.is_new:
        logger.warning("the last run did not shut down cleanly; recovering the logs in %s", path)
    catalog: Catalog
    if shared is None:
        catalog, cluster = SqliteCatalog(path / CATALOG), None
    else:
        catalog, cluster = shared.stores.catalog, shared.cluster
        await asyncio.to_thread(shared.stores.import_data_dir, path / CATALOG, path / GROUPS)
    broker = Broker(engine=engine, catalog=catalog, clock=clock, settings=settings, cluster=cluster)
    await broker.open()
    await engine.start()
    return broker


async def open_groups(broker: Broker, shared: SharedParts | None = None) -> GroupServices:
    """The groups of ``broker``, as they were left. Raises ``GroupStoreFailed``.

    With shared storage they are served while the broker has the lease on them.
    """
    settings = broker.settings
    clock = SystemClock()

    async def list_offset(topic: str, partition: int, at: int) -> int:
        offset, _, _ = await broker.list_offset(
            topic, partition, at, isolation=IsolationLevel.READ_UNCOMMITTED
        )
        return offset

    def make(
        store: GroupStore, thread: ThreadPoolExecutor | None = None, ask_ended: AskEnded | None = None
    ) -> Groups:
        table = GroupTable(
            store=store,
            store_thread=thread,
            clock=clock,
            settings=settings,
            topic=broker.readable_topic,
            configs=broker.configs.groups,
            topic_names=lambda: [topic.name for topic in broker.readable_topics()],
            list_offset=list_offset,
            write_dead_letters=DeadLetterWriter(broker).write,
        )
        coordinator = GroupCoordinator(table, ask_ended=ask_ended)
        broker.observe_deletions(coordinator.forget_topic)
        broker.observe_topics(coordinator.topics_changed)
        return Groups(
            coordinator,
            LeaseManager(broker=broker, coordinator=coordinator, clock=clock),
            ShareQueue(broker=broker, shares=coordinator.shares),
        )

    if shared is None:
        groups = make(SqliteGroupStore(settings.data_dir.absolute() / GROUPS))
        # Before the coordinator opens: a group may have committed offsets of this topic, too.
        broker.serve_virtual(OffsetsTopic(groups.coordinator, cluster_id=broker.cluster_id))
        await groups.coordinator.open()
        return groups
    shards: list[Groups] = []
    for number, store in enumerate(shared.stores.groups):
        shard = make(store, shared.stores.group_thread(number), store.ended_producers)
        lease = lease_of_shard(number)
        work = ShardLease(shard, lease=lease, take=store.take, cluster=shared.cluster)
        await work.stand_by()
        shared.cluster.hold(lease, work, is_spread=True)
        shards.append(shard)
    # Before the broker joins and gets leases, as above.
    broker.serve_virtual(
        ShardedOffsetsTopic(
            [shard.coordinator for shard in shards],
            shared.cluster,
            deletions=[store.deletions for store in shared.stores.groups],
            cluster_id=broker.cluster_id,
            broker_id=broker.broker_id,
        )
    )
    return GroupShards(shards)


async def open_transactions(
    broker: Broker, services: GroupServices, shared: SharedParts | None = None
) -> Transactions:
    """The transactions of ``broker``; without shared storage they are recovered.

    Raises ``StorageError``, ``GroupStoreFailed``, ``CoordinatorNotAvailable``.
    """
    clock = SystemClock()
    if shared is not None:
        return await open_shared_services(broker, services, shared.stores.transactions, clock)
    groups = services.all()[0]
    coordinator = TransactionCoordinator(
        broker=broker, groups=groups.coordinator, clock=clock, settings=broker.settings
    )
    await coordinator.open()
    return await open_services(broker, groups, coordinator, clock)


def start_problem(error: OSError, data_dir: Path) -> str:
    """Return why the broker cannot start, and what to do."""
    path = Path(error.filename or data_dir)
    if error.errno in DISK_FULL:
        # The broker keeps space back for its starts; it was used, or another program has it.
        return f"{StorageFull(path, error)}; a start needs about 1 MiB: move other files away, or make the file system larger"
    if error.errno in LIMIT_REACHED:
        return str(StorageLimitReached(path, error))
    return ": ".join(map(str, filter(None, (error.strerror or error, error.filename))))
