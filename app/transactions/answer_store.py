"""The answers to requests with an idempotency key.

They are in the store of one broker, or in that of a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..cluster.shared_transactions import SharedTransactionStore
from ..cluster.transaction_store import StoredAnswer, TransactionChange
from ..groups.table import GroupTable
from ..settings import Settings
from .kept_answers import KeptAnswers


class Answers(Protocol):
    async def open(self) -> None:
        """Learn which keys have an answer. Raises ``GroupStoreFailed``."""
        ...

    async def find(self, key: str, *, now_ms: int) -> StoredAnswer | None:
        """Return the answer of a key; None if it has none, or an expired one.

        Raises ``GroupStoreFailed``, ``CoordinatorNotAvailable``.
        """
        ...

    def plan(self, answer: StoredAnswer) -> Sequence[TransactionChange]:
        """Return what to store with the outcome of the transaction."""
        ...

    def take(self, changes: Sequence[TransactionChange]) -> None:
        """Take over what was stored."""
        ...


class LocalAnswers:
    """Those of a broker on its own, in the store of its groups."""

    def __init__(self, table: GroupTable, settings: Settings) -> None:
        self._table = table
        self._settings = settings
        self._kept = self._make()

    def _make(self, ages: Sequence[tuple[str, int]] = ()) -> KeptAnswers:
        settings = self._settings
        return KeptAnswers(
            ages, keys_max=settings.idempotency_keys_max, expiration_ms=settings.idempotency_key_expiration_ms
        )

    async def open(self) -> None:
        self._kept = self._make(await self._table.answer_ages())

    async def find(self, key: str, *, now_ms: int) -> StoredAnswer | None:
        if not self._kept.has(key, now_ms=now_ms):
            return None
        # None if it was forgotten meanwhile, to make room.
        return await self._table.stored_answer(key)

    def plan(self, answer: StoredAnswer) -> Sequence[TransactionChange]:
        return self._kept.plan(answer)

    def take(self, changes: Sequence[TransactionChange]) -> None:
        self._kept.take(changes)


class SharedAnswers:
    """Kept responses of a cluster, which any broker reads from the database.

    ``SharedTransactionStore.expire`` forgets old ones.
    """

    def __init__(self, store: SharedTransactionStore, settings: Settings) -> None:
        self._store = store
        self._kept_ms = settings.idempotency_key_expiration_ms

    async def open(self) -> None:
        """Return: nothing is remembered."""

    async def find(self, key: str, *, now_ms: int) -> StoredAnswer | None:
        return await self._store.answer(key, self._kept_ms)

    def plan(self, answer: StoredAnswer) -> Sequence[TransactionChange]:
        return [answer]

    def take(self, changes: Sequence[TransactionChange]) -> None:
        """Return: nothing is remembered."""
