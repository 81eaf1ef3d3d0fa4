"""The stores of what brokers share, over three connections to PostgreSQL. It needs the extra ``cluster``."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from .cluster.postgres import PostgresCatalog
from .cluster.postgres_acls import PostgresAclStore
from .cluster.postgres_credentials import PostgresCredentialStore
from .cluster.postgres_groups import PostgresGroupStore
from .cluster.postgres_import import import_data_dir
from .cluster.postgres_membership import PostgresMembership
from .cluster.postgres_survey import PostgresSurveyor
from .postgres.pool import PostgresPool
from .postgres.session import PostgresSession


class SharedStores:
    """One set per broker. The schema has been migrated before the first call.

    ``pool`` is for queries that read much. Raises ``ValueError`` if ``url`` is no connection string.
    """

    def __init__(self, url: str, pool: PostgresPool, *, groups_lease: str, incarnation: UUID) -> None:
        # Commits of offsets and heartbeats must not wait for changes of topics, or for each other.
        self.traffic = traffic = pool.traffic
        self._session = PostgresSession(url, traffic=traffic)
        self.catalog = PostgresCatalog(self._session)
        self.credentials = PostgresCredentialStore(self._session)
        self.acls = PostgresAclStore(self._session)
        self.membership = PostgresMembership(PostgresSession(url, traffic=traffic))
        self.surveyor = PostgresSurveyor(pool)
        self.groups = PostgresGroupStore(
            PostgresSession(url, traffic=traffic), lease=groups_lease, incarnation=incarnation
        )

    def import_data_dir(self, catalog: Path, groups: Path) -> bool:
        """See ``app.cluster.postgres_import``."""
        return import_data_dir(self._session, catalog, groups)

    def close(self) -> None:
        """Close the connection of the catalog; the others belong to the cluster and the groups."""
        self._session.close()
