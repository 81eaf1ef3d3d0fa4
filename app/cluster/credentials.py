"""The interface of the store that keeps users and API keys.

Methods block, as those of ``catalog`` do. No secret is stored: of a password its SCRAM
credential, of an API key its hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramRecord:
    """Stored SCRAM credentials of ``user``, per mechanism (RFC 5802)."""

    user: str
    mechanism: str
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """``digest`` is the SHA-256 of the key's secret; ``expires_at_ms`` is None if it does not expire."""

    key_id: str
    digest: bytes
    principal: str
    description: str
    created_at_ms: int
    expires_at_ms: int | None


class CredentialStore(Protocol):
    def secret(self) -> bytes:
        """Return 32 random bytes that are made at the first call and never change."""
        ...

    def scram_records(self) -> list[ScramRecord]: ...
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
        ...

    def api_keys(self) -> list[ApiKeyRecord]: ...
    def add_api_key(self, key: ApiKeyRecord) -> None: ...
    def delete_api_key(self, key_id: str) -> bool: ...
    def close(self) -> None: ...
