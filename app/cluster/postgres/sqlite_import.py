"""Moves the catalog and the groups of a data directory into PostgreSQL, once.

A broker with shared storage kept them in its data directory before several brokers could share them, and the
first users of a cluster are created there (``stele user add``). The first broker of a cluster takes them over.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import LiteralString

from ...postgres.connector import Connection
from ...postgres.session import PostgresSession
from ..consumer_group_store import ConsumerMemberRecord
from ..group_store import StoreChange
from ..sqlite.acls import SqliteAclStore
from ..sqlite.catalog import SqliteCatalog
from ..sqlite.credentials import SqliteCredentialStore
from ..sqlite.groups import SqliteGroupStore
from .catalog import ChangeKind, changed, run
from .groups import write_groups

logger = logging.getLogger(__name__)

# Added to the names of the files, so that they are not mistaken for those in use.
MOVED = ".moved-to-postgresql"

# A statement, and the rows that it is executed with.
_Statement = tuple[LiteralString, list[tuple[object, ...]]]


def import_data_dir(session: PostgresSession, catalog_path: Path, groups_path: Path) -> bool:
    """Store what the files have, if the database has no cluster yet; return whether it did.

    Raises ``StorageUnavailable``, ``GroupStoreFailed``, ``sqlite3.Error``.
    """
    if not catalog_path.exists():
        return False
    numbers, rows = _catalog_rows(catalog_path)
    groups = _group_changes(groups_path)

    def work(connection: Connection) -> bool:
        # Locks out other brokers that start at the same time.
        for kind in ChangeKind:
            changed(connection, kind)
        if connection.execute("SELECT FROM numbers WHERE name = 'cluster_id'").fetchone() is not None:
            return False
        with connection.cursor() as cursor:
            for statement, given in rows:
                if given:
                    cursor.executemany(statement, given)
            cursor.executemany("INSERT INTO numbers VALUES (%s, %s)", numbers)
        write_groups(connection, groups)
        return True

    is_imported = run(session, "taking over the data directory", work)
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


def _catalog_rows(path: Path) -> tuple[list[tuple[str, str]], list[_Statement]]:
    """Return the rows of the table numbers, and statements for the other tables.

    The statements come with their rows.
    """
    catalog, users, acls = SqliteCatalog(path), SqliteCredentialStore(path), SqliteAclStore(path)
    try:
        numbers = [
            ("cluster_id", catalog.cluster_id()),
            ("next_producer_id", str(catalog.next_producer_id_block(1))),
            ("credential_secret", users.secret().hex()),
        ]
        rows: list[_Statement] = [
            (
                "INSERT INTO topics (name, topic_id, partitions, configs) VALUES (%s, %s, %s, %s)",
                [(t.name, t.topic_id, t.partitions, json.dumps(dict(t.configs))) for t in catalog.topics()],
            ),
            (
                "INSERT INTO configs VALUES (%s, %s, %s)",
                [(c.kind, c.entity.encode(), json.dumps(dict(c.configs))) for c in catalog.configs()],
            ),
            (
                "INSERT INTO named_producers VALUES (%s, %s, %s, %s, %s)",
                [
                    (p.name.encode(), p.version, p.producer_id, p.epoch, p.begun_at_ms)
                    for p in catalog.named_producers()
                ],
            ),
            # When they were used last is not known to the shared catalog: they count as used now.
            (
                "INSERT INTO named_producer_uses VALUES (%s, now()) ON CONFLICT DO NOTHING",
                [(p.producer_id,) for p in catalog.named_producers()],
            ),
            (
                "INSERT INTO scram_credentials VALUES (%s, %s, %s, %s, %s, %s)",
                [
                    (s.user, s.mechanism, s.salt, s.stored_key, s.server_key, s.iterations)
                    for s in users.scram_records()
                ],
            ),
            (
                "INSERT INTO api_keys VALUES (%s, %s, %s, %s, %s, %s)",
                [
                    (k.key_id, k.digest, k.principal, k.description, k.created_at_ms, k.expires_at_ms)
                    for k in users.api_keys()
                ],
            ),
            (
                "INSERT INTO acls VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [
                    (
                        a.resource_type,
                        a.pattern_type,
                        a.resource_name.encode(),
                        a.principal.encode(),
                        a.host.encode(),
                        a.operation,
                        a.permission,
                    )
                    for a in acls.acls()
                ],
            ),
        ]
    finally:
        for store in (catalog, users, acls):
            store.close()
    return numbers, rows


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
