"""Access rules that brokers share, in PostgreSQL (ADR-0046)."""

from __future__ import annotations

from collections.abc import Sequence

from ...postgres.connector import Connection
from ...postgres.session import PostgresSession
from ..acls import AclRecord
from .catalog import ChangeKind, changed, run

_COLUMNS = "resource_type, pattern_type, resource_name, principal, host, operation, permission"


class PostgresAclStore:
    """Implements ``AclStore``. The session is the caller's, who closes it."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def acls(self) -> list[AclRecord]:
        rows = run(
            self._session,
            "reading access rules",
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM acls ORDER BY {_COLUMNS}"  # noqa: S608 - names from above
            ).fetchall(),
        )
        return [
            AclRecord(kind, pattern, name.decode(), principal.decode(), host.decode(), operation, permission)
            for kind, pattern, name, principal, host, operation, permission in rows
        ]

    def change_acls(self, added: Sequence[AclRecord], removed: Sequence[AclRecord]) -> None:
        def work(connection: Connection) -> None:
            changed(connection, ChangeKind.ACLS)
            with connection.cursor() as cursor:
                cursor.executemany(
                    "DELETE FROM acls WHERE resource_type = %s AND pattern_type = %s AND resource_name = %s"
                    " AND principal = %s AND host = %s AND operation = %s AND permission = %s",
                    [_row(record) for record in removed],
                )
                cursor.executemany(
                    f"INSERT INTO acls ({_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",  # noqa: S608
                    [_row(record) for record in added],
                )

        run(self._session, "changing access rules", work)

    def close(self) -> None:
        """Leave the session open: the catalog shares it."""


def _row(record: AclRecord) -> tuple[int, int, bytes, bytes, bytes, int, int]:
    return (
        record.resource_type,
        record.pattern_type,
        record.resource_name.encode(),
        record.principal.encode(),
        record.host.encode(),
        record.operation,
        record.permission,
    )
