"""Builds the replica of a standalone broker from its parts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from .broker.broker import Broker
from .clock import SystemClock
from .composition import CATALOG, GROUPS
from .groups.services import GroupServices
from .settings import Settings
from .storage.embedded import EmbeddedEngine
from .storage.setup_problems import InvalidStorage

if TYPE_CHECKING:
    from .storage.replica.remote_reads import RemoteReads
    from .storage.replica.replicator import Replicator
    from .storage.shared.store.object_store import ConditionalStore


@dataclass(frozen=True, slots=True)
class ReplicaBucket:
    """The bucket of a replica, and the reads of what is only there. Nothing was asked of it yet."""

    url: str
    store: ConditionalStore
    reads: RemoteReads


async def open_bucket(settings: Settings) -> ReplicaBucket | None:
    """Return the bucket that the settings name, if they do.

    Raises:
        InvalidStorage: it cannot be used.
    """
    if settings.replicate_to is None:
        return None
    if settings.storage == "shared":
        raise InvalidStorage(
            "replicate_to is for brokers that keep their records themselves: with storage=shared they are in the object "
            "store, whose provider has backups of it, and of PostgreSQL"
        )
    try:
        from .storage.replica.bucket_url import open_bucket as open_url
        from .storage.replica.remote_reads import RemoteReads
    except ImportError as error:
        raise InvalidStorage(
            f"a replica needs the extra bucket ({error}): pip install 'stele-broker[bucket]'"
        ) from error
    store = await asyncio.to_thread(open_url, settings.replicate_to)
    reads = RemoteReads(store, cache_bytes_max=settings.remote_cache_bytes_max)
    return ReplicaBucket(settings.replicate_to, store, reads)


async def open_replica(
    bucket: ReplicaBucket, engine: EmbeddedEngine, broker: Broker, groups: GroupServices
) -> Replicator:
    """Return the replica of a broker; it has begun.

    Raises:
        InvalidStorage: the bucket cannot be used, or has the replica of another data directory.
    """
    from .storage.replica.options import ReplicaOptions
    from .storage.replica.replicator import Replicator
    from .storage.replica.store_images import StoreImages
    from .storage.replica.store_uploads import StoreSource

    settings = broker.settings
    path = settings.data_dir.absolute()
    (own,) = groups.all()
    replica = Replicator(
        bucket.store,
        url=bucket.url,
        cluster_id=broker.cluster_id,
        incarnation=uuid4(),
        leader_epoch=lambda: engine.newest_leader_epoch,
        changes=engine.follow_changes(),
        stores=(
            StoreSource(StoreImages(path / CATALOG), broker.run_in_catalog),
            StoreSource(StoreImages(path / GROUPS), own.coordinator.table.run_in_store),
        ),
        clock=SystemClock(),
        options=ReplicaOptions(
            interval_ms=settings.replica_interval_ms, retention_ms=settings.replica_retention_ms
        ),
    )
    replica.status.remote = bucket.reads.counts
    await replica.open()
    engine.replicated_by(replica.cover, replica)
    return replica
