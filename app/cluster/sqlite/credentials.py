"""Users and API keys in the embedded catalog, beside the topics (ADR-0008)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from ..credentials import ApiKeyRecord, ScramRecord
from .catalog import CatalogDatabase

_SECRET_BYTES = 32


class SqliteCredentialStore:
    """Implements ``CredentialStore`` on a connection of its own; calls must come one at a time."""

    def __init__(self, path: Path) -> None:
        self._database = CatalogDatabase(path)

    def secret(self) -> bytes:
        with self._database.transaction() as database:
            row = database.execute("SELECT value FROM numbers WHERE name = 'credential_secret'").fetchone()
            if row:
                return bytes.fromhex(row[0])
            made = secrets.token_bytes(_SECRET_BYTES)
            database.execute("INSERT INTO numbers VALUES ('credential_secret', ?)", (made.hex(),))
            return made

    def scram_records(self) -> list[ScramRecord]:
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT user, mechanism, salt, stored_key, server_key, iterations FROM scram_credentials"
                " ORDER BY user, mechanism"
            ).fetchall()
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
        with self._database.transaction() as database:
            if password_of is not None:
                database.execute("DELETE FROM scram_credentials WHERE user = ?", (password_of,))
            database.executemany("DELETE FROM scram_credentials WHERE user = ? AND mechanism = ?", deleted)
            database.executemany(
                "INSERT OR REPLACE INTO scram_credentials"
                " (user, mechanism, salt, stored_key, server_key, iterations) VALUES (?, ?, ?, ?, ?, ?)",
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

    def api_keys(self) -> list[ApiKeyRecord]:
        with self._database.transaction() as database:
            rows = database.execute(
                "SELECT key_id, digest, principal, description, created_at_ms, expires_at_ms FROM api_keys"
                " ORDER BY created_at_ms, key_id"
            ).fetchall()
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
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO api_keys (key_id, digest, principal, description, created_at_ms, expires_at_ms)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    key.key_id,
                    key.digest,
                    key.principal,
                    key.description,
                    key.created_at_ms,
                    key.expires_at_ms,
                ),
            )

    def delete_api_key(self, key_id: str) -> bool:
        with self._database.transaction() as database:
            return database.execute("DELETE FROM api_keys WHERE key_id = ?", (key_id,)).rowcount == 1

    def close(self) -> None:
        self._database.close()
