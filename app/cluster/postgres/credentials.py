"""Users and API keys that brokers share, in PostgreSQL (ADR-0046)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...postgres.connector import Connection
from ...postgres.session import PostgresSession
from ..credentials import ApiKeyRecord, ScramRecord
from .catalog import ChangeKind, changed, run, stored_once

_T = TypeVar("_T")

_SECRET_BYTES = 32


class PostgresCredentialStore:
    """Implements ``CredentialStore``. The session is the caller's, who closes it."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def _run(self, work: Callable[[Connection], _T]) -> _T:
        return run(self._session, "a call to the store of users", work)

    def secret(self) -> bytes:
        return bytes.fromhex(
            self._run(
                lambda connection: stored_once(
                    connection, "credential_secret", lambda: secrets.token_hex(_SECRET_BYTES)
                )
            )
        )

    def scram_records(self) -> list[ScramRecord]:
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT username, mechanism, salt, stored_key, server_key, iterations FROM scram_credentials"
                " ORDER BY username, mechanism"
            ).fetchall()
        )
        return [
            ScramRecord(
                user=user,
                mechanism=mechanism,
                salt=salt,
                stored_key=stored_key,
                server_key=server_key,
                iterations=iterations,
            )
            for user, mechanism, salt, stored_key, server_key, iterations in rows
        ]

    def change_scram(
        self,
        stored: Sequence[ScramRecord],
        deleted: Sequence[tuple[str, str]],
        *,
        password_of: str | None = None,
    ) -> None:
        def work(connection: Connection) -> None:
            changed(connection, ChangeKind.CREDENTIALS)
            if password_of is not None:
                connection.execute("DELETE FROM scram_credentials WHERE username = %s", (password_of,))
            with connection.cursor() as cursor:
                cursor.executemany(
                    "DELETE FROM scram_credentials WHERE username = %s AND mechanism = %s", list(deleted)
                )
                cursor.executemany(
                    "INSERT INTO scram_credentials VALUES (%s, %s, %s, %s, %s, %s)"
                    " ON CONFLICT (username, mechanism) DO UPDATE SET salt = EXCLUDED.salt,"
                    " stored_key = EXCLUDED.stored_key, server_key = EXCLUDED.server_key,"
                    " iterations = EXCLUDED.iterations",
                    [
                        (
                            record.user,
                            record.mechanism,
                            record.salt,
                            record.stored_key,
                            record.server_key,
                            record.iterations,
                        )
                        for record in stored
                    ],
                )

        self._run(work)

    def api_keys(self) -> list[ApiKeyRecord]:
        rows = self._run(
            lambda connection: connection.execute(
                "SELECT key_id, digest, principal, description, created_at_ms, expires_at_ms FROM api_keys"
                " ORDER BY created_at_ms, key_id"
            ).fetchall()
        )
        return [
            ApiKeyRecord(
                key_id=key_id,
                digest=digest,
                principal=principal,
                description=description,
                created_at_ms=created_at_ms,
                expires_at_ms=expires_at_ms,
            )
            for key_id, digest, principal, description, created_at_ms, expires_at_ms in rows
        ]

    def add_api_key(self, key: ApiKeyRecord) -> None:
        def work(connection: Connection) -> None:
            changed(connection, ChangeKind.CREDENTIALS)
            # An earlier attempt, whose answer was lost, may have stored it. Ids are random.
            connection.execute(
                "INSERT INTO api_keys VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (key_id) DO NOTHING",
                (
                    key.key_id,
                    key.digest,
                    key.principal,
                    key.description,
                    key.created_at_ms,
                    key.expires_at_ms,
                ),
            )

        self._run(work)

    def delete_api_key(self, key_id: str) -> bool:
        def work(connection: Connection) -> bool:
            changed(connection, ChangeKind.CREDENTIALS)
            return connection.execute("DELETE FROM api_keys WHERE key_id = %s", (key_id,)).rowcount == 1

        return self._run(work)

    def close(self) -> None:
        """Leave the session open: the catalog shares it."""
