"""Access rules in the embedded catalog, beside the topics (ADR-0008)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..acls import AclRecord
from .catalog import CatalogDatabase


class SqliteAclStore:
    """Implements ``AclStore`` on a connection of its own; calls must come one at a time."""

    def __init__(self, path: Path) -> None:
        self._database = CatalogDatabase(path)

    def acls(self) -> list[AclRecord]:
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT resource_type, pattern_type, resource_name, principal, host, operation, permission"
                " FROM acls"
            ).fetchall()
        return [AclRecord(*row) for row in rows]

    def change_acls(self, added: Sequence[AclRecord], removed: Sequence[AclRecord]) -> None:
        with self._database.transaction() as database:
            database.executemany(
                "DELETE FROM acls WHERE resource_type = ? AND pattern_type = ? AND resource_name = ?"
                " AND principal = ? AND host = ? AND operation = ? AND permission = ?",
                removed,
            )
            database.executemany(
                "INSERT OR IGNORE INTO acls"
                " (resource_type, pattern_type, resource_name, principal, host, operation, permission)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                added,
            )

    def close(self) -> None:
        self._database.close()
