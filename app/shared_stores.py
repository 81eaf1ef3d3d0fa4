"""The stores of what brokers share, over connections of their own to PostgreSQL.

It needs the extra ``cluster``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

from .cluster.acls import AclStore
from .cluster.credentials import CredentialStore
from .cluster.group_shards import SHARDS
from .cluster.postgres.catalog import PostgresCatalog
from .cluster.postgres.database import PostgresDatabase
from .cluster.postgres.groups import PostgresGroupStore
from .cluster.postgres.membership import PostgresMembership
from .cluster.postgres.sqlite_import import import_data_dir
from .cluster.postgres.survey import PostgresSurveyor
from .cluster.postgres.transactions import PostgresTransactions
from .postgres.connection_counts import GROUPS
from .postgres.pool import PostgresPool
from .postgres.session import PostgresSession
from .storage.shared.postgres.markers import PostgresMarkers


class SharedStores:
    """One set per broker. The schema has been migrated before the first call.

    ``pool`` is for queries that read much.
    """

    def __init__(self, pool: PostgresPool, *, incarnation: UUID) -> None:
        # Commits of offsets and heartbeats must not wait for changes of topics, or for each other.
        self.pool = pool
        self.traffic = traffic = pool.traffic
        self._session = PostgresSession(pool.connector, traffic=traffic)
        database = PostgresDatabase(self._session)
        self.catalog = PostgresCatalog(database)
        self.credentials = CredentialStore(database)
        self.acls = AclStore(database)
        self.membership = PostgresMembership(PostgresSession(pool.connector, traffic=traffic))
        self.surveyor = PostgresSurveyor(pool)
        self.transactions = PostgresTransactions(pool, PostgresMarkers(incarnation).append)
        # Shards that share a connection also share the thread that uses it.
        self._group_sessions = [PostgresSession(pool.connector, traffic=traffic) for _ in range(GROUPS)]
        self._group_threads = [
            ThreadPoolExecutor(1, thread_name_prefix="stele-groups") for _ in range(GROUPS)
        ]
        self.groups = [
            PostgresGroupStore(self._group_sessions[shard % GROUPS], shard=shard, incarnation=incarnation)
            for shard in range(SHARDS)
        ]

    def group_thread(self, shard: int) -> ThreadPoolExecutor:
        """Return the thread for the groups of a shard."""
        return self._group_threads[shard % GROUPS]

    def import_data_dir(self, catalog: Path, groups: Path) -> bool:
        """See ``app.cluster.postgres.sqlite_import``."""
        return import_data_dir(self._session, catalog, groups)

    def close(self) -> None:
        """Close the connections of the catalog and of the groups; the other belongs to the cluster."""
        for thread in self._group_threads:
            thread.shutdown()
        for session in self._group_sessions:
            session.close()
        self._session.close()
