"""Moves the catalog and the groups of a data directory into PostgreSQL, once.

A broker with shared storage kept them in its data directory before several brokers could share them, and the
first users of a cluster are created there (``stele user add``). The first broker of a cluster takes them over.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, LiteralString

from ...postgres.session import PostgresSession
from ..consumer_group_store import ConsumerMemberRecord
from ..database import ChangeKind, insert
from ..group_store import StoreChange
from ..sqlite.catalog import SqliteCatalog
from ..sqlite.groups import SqliteGroupStore
from .database import PostgresDatabase, PostgresTransaction
from .groups import PostgresGroupTables

logger = logging.getLogger(__name__)

# Added to the names of the files, so that they are not mistaken for those in use.
MOVED = ".moved-to-postgresql"

_COLUMNS: Mapping[LiteralString, LiteralString] = {
    "numbers": "name, value",
    "topics": "name, topic_id, partitions, configs",
    "configs": "kind, entity, configs",
    "named_producers": "name, version, producer_id, epoch, begun_at_ms",
    "scram_credentials": "username, mechanism, salt, stored_key, server_key, iterations",
    "api_keys": "key_id, digest, principal, description, created_at_ms, expires_at_ms",
    "acls": "resource_type, pattern_type, resource_name, principal, host, operation, permission",
}
# Columns that are bytes in PostgreSQL.
_NAMES: Mapping[str, Collection[str]] = {
    "configs": ("entity",),
    "named_producers": ("name",),
    "acls": ("resource_name", "principal", "host"),
}


def import_data_dir(session: PostgresSession, catalog_path: Path, groups_path: Path) -> bool:
    """Store what the files have, if the database has no cluster yet; return whether it did.

    Raises ``StorageUnavailable``, ``GroupStoreFailed``, ``sqlite3.Error``.
    """
    if not catalog_path.exists():
        return False
    tables = _catalog_rows(catalog_path)
    groups = _group_changes(groups_path)

    def work(sql: PostgresTransaction) -> bool:
        # Locks out other brokers that start at the same time.
        for kind in ChangeKind:
            sql.changed(kind)
        if sql.execute("SELECT FROM numbers WHERE name = 'cluster_id'").fetchone() is not None:
            return False
        for table, columns in _COLUMNS.items():
            sql.executemany(insert(table, columns), tables[table])
        # When they were used last is not known to the shared catalog: they count as used now.
        sql.execute(
            "INSERT INTO named_producer_uses SELECT DISTINCT producer_id, now() FROM named_producers"
            " ON CONFLICT DO NOTHING"
        )
        PostgresGroupTables(sql.connection).apply(groups)
        return True

    is_imported = PostgresDatabase(session).run("taking over the data directory", work)
    if is_imported:
        logger.info("the catalog and the groups of %s are in PostgreSQL from now on", catalog_path.parent)
        for path in (catalog_path, groups_path):
            if path.exists():
                path.rename(path.with_name(path.name + MOVED))
    else:
        logger.warning(
            "%s is not used: the catalog of the cluster is in PostgreSQL; remove the file", catalog_path
        )
    return is_imported


def _catalog_rows(path: Path) -> dict[LiteralString, list[tuple[Any, ...]]]:
    """Return the rows of each table of ``_COLUMNS``, as PostgreSQL takes them."""
    catalog = SqliteCatalog(path)
    try:
        # A data directory in which only users were created has neither.
        catalog.cluster_id()
        catalog.next_producer_id_block(1)
        return catalog.database.run(
            "reading the catalog",
            lambda sql: {
                table: [
                    tuple(
                        value.encode() if column in _NAMES.get(table, ()) else value
                        for column, value in zip(columns.split(", "), row, strict=True)
                    )
                    for row in sql.execute(f"SELECT {columns} FROM {table}")
                ]
                for table, columns in _COLUMNS.items()
            },
        )
    finally:
        catalog.close()


def _group_changes(path: Path) -> list[StoreChange]:
    if not path.exists():
        return []
    store = SqliteGroupStore(path)
    stored = store.open()
    store.close()
    consumers = [
        change
        for group in stored.consumer_groups
        for change in (
            group.record,
            *(ConsumerMemberRecord(group=group.record.group, member=member) for member in group.members),
        )
    ]
    return [*stored.groups, *consumers, *stored.offsets]
