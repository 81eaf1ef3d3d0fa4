"""The store of users and API keys, beside the topics.

Methods block, as those of ``catalog`` do; calls must come one at a time. No secret is stored: of a password its
SCRAM credential, of an API key its hash.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import TypeVar

from .database import ChangeKind, Database, SqlTransaction, insert, stored_once, upsert

_T = TypeVar("_T")

_SECRET_BYTES = 32
_SCRAM_COLUMNS = "username, mechanism, salt, stored_key, server_key, iterations"
_INSERT_SCRAM = upsert("scram_credentials", "username, mechanism", "salt, stored_key, server_key, iterations")
_KEY_COLUMNS = "key_id, digest, principal, description, created_at_ms, expires_at_ms"


@dataclass(frozen=True, slots=True)
class ScramRecord:
    """Stored SCRAM credentials of ``user``, per mechanism (RFC 5802). Fields are the columns, in order."""

    user: str
    mechanism: str
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ApiKeyRecord:
    """An API key; fields are the columns, in order.

    ``digest`` is the SHA-256 of the key's secret; ``expires_at_ms`` is None if it does not expire.
    """

    key_id: str
    digest: bytes
    principal: str
    description: str
    created_at_ms: int
    expires_at_ms: int | None


class CredentialStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    def _run(self, work: Callable[[SqlTransaction], _T]) -> _T:
        return self._database.run("a call to the store of users", work)

    def secret(self) -> bytes:
        """Return 32 random bytes that are made at the first call and never change."""

        def work(sql: SqlTransaction) -> str:
            return stored_once(sql, "credential_secret", lambda: secrets.token_hex(_SECRET_BYTES))

        return bytes.fromhex(self._run(work))

    def scram_records(self) -> list[ScramRecord]:
        query = f"SELECT {_SCRAM_COLUMNS} FROM scram_credentials ORDER BY username, mechanism"
        return [ScramRecord(*row) for row in self._run(lambda sql: sql.execute(query).fetchall())]

    def change_scram(
        self,
        stored: Sequence[ScramRecord],
        deleted: Sequence[tuple[str, str]],
        *,
        password_of: str | None = None,
    ) -> None:
        """Store and delete records; the deleted are user and mechanism.

        If ``password_of`` names a user, all of its other records are deleted.
        """

        def work(sql: SqlTransaction) -> None:
            sql.changed(ChangeKind.CREDENTIALS)
            if password_of is not None:
                sql.execute("DELETE FROM scram_credentials WHERE username = %s", (password_of,))
            sql.executemany("DELETE FROM scram_credentials WHERE username = %s AND mechanism = %s", deleted)
            sql.executemany(_INSERT_SCRAM, [astuple(record) for record in stored])

        self._run(work)

    def api_keys(self) -> list[ApiKeyRecord]:
        query = f"SELECT {_KEY_COLUMNS} FROM api_keys ORDER BY created_at_ms, key_id"
        return [ApiKeyRecord(*row) for row in self._run(lambda sql: sql.execute(query).fetchall())]

    def add_api_key(self, key: ApiKeyRecord) -> None:
        def work(sql: SqlTransaction) -> None:
            sql.changed(ChangeKind.CREDENTIALS)
            # An earlier attempt, whose answer was lost, may have stored it. Ids are random.
            sql.execute(
                f"{insert('api_keys', _KEY_COLUMNS)} ON CONFLICT (key_id) DO NOTHING",
                astuple(key),
            )

        self._run(work)

    def delete_api_key(self, key_id: str) -> bool:
        def work(sql: SqlTransaction) -> bool:
            sql.changed(ChangeKind.CREDENTIALS)
            return sql.execute("DELETE FROM api_keys WHERE key_id = %s", (key_id,)).rowcount == 1

        return self._run(work)

    def close(self) -> None:
        self._database.close()
