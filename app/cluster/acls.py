"""The store of access rules (ACLs), beside the topics.

Methods block, as those of ``catalog`` do; calls must come one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .database import ChangeKind, Database, SqlTransaction, insert, text_of

_COLUMNS = "resource_type, pattern_type, resource_name, principal, host, operation, permission"
_INSERT = f"{insert('acls', _COLUMNS)} ON CONFLICT DO NOTHING"
_DELETE = (
    "DELETE FROM acls WHERE resource_type = %s AND pattern_type = %s AND resource_name = %s"
    " AND principal = %s AND host = %s AND operation = %s AND permission = %s"
)


class AclRecord(NamedTuple):
    """One rule, with the numbers of Kafka's protocol."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


class AclStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def acls(self) -> list[AclRecord]:
        rows = self._database.run(
            "reading access rules",
            lambda sql: sql.execute(f"SELECT {_COLUMNS} FROM acls ORDER BY {_COLUMNS}").fetchall(),
        )
        return [
            AclRecord(kind, pattern, text_of(name), text_of(principal), text_of(host), operation, permission)
            for kind, pattern, name, principal, host, operation, permission in rows
        ]

    def change_acls(self, added: Sequence[AclRecord], removed: Sequence[AclRecord]) -> None:
        """Add and remove rules together; one that is there already, or is not, changes nothing."""

        def work(sql: SqlTransaction) -> None:
            sql.changed(ChangeKind.ACLS)
            sql.executemany(_DELETE, [_row(sql, record) for record in removed])
            sql.executemany(_INSERT, [_row(sql, record) for record in added])

        self._database.run("changing access rules", work)

    def close(self) -> None:
        self._database.close()


def _row(sql: SqlTransaction, record: AclRecord) -> tuple[int | str | bytes, ...]:
    kind, pattern, name, principal, host, operation, permission = record
    return (kind, pattern, sql.name(name), sql.name(principal), sql.name(host), operation, permission)
