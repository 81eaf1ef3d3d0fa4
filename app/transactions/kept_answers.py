"""Committed requests with an idempotency key; their responses are in the store.

Bounded by count and age. Changes are planned before a request commits, stored with its outcome, and
taken over when that is durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..cluster.transaction_store import DeleteAnswer, StoredAnswer, TransactionChange

# So that one commit does not pay for all answers that expired since the last one.
_DELETIONS_PER_ANSWER = 100


class KeptAnswers:
    """The keys, and when the answer of each was stored; the oldest first."""

    def __init__(self, ages: Iterable[tuple[str, int]] = (), *, keys_max: int, expiration_ms: int) -> None:
        self._created_at_ms = dict(ages)
        self._keys_max = keys_max
        self._expiration_ms = expiration_ms

    def __len__(self) -> int:
        return len(self._created_at_ms)

    def has(self, key: str, *, now_ms: int) -> bool:
        """Return whether the store has an answer of ``key`` that has not expired."""
        created_at_ms = self._created_at_ms.get(key)
        return created_at_ms is not None and now_ms - created_at_ms < self._expiration_ms

    def plan(self, answer: StoredAnswer) -> Sequence[TransactionChange]:
        """Return what to store: the answer, and the deletion of those for which there is no room."""
        changes: list[TransactionChange] = [answer]
        surplus = len(self._created_at_ms) + 1 - self._keys_max
        for key, created_at_ms in self._created_at_ms.items():
            is_expired = answer.created_at_ms - created_at_ms >= self._expiration_ms
            if len(changes) > _DELETIONS_PER_ANSWER or not (is_expired or surplus > 0):
                break
            surplus -= 1
            if key != answer.key:
                changes.append(DeleteAnswer(key=key, created_at_ms=created_at_ms))
        return changes

    def take(self, changes: Sequence[TransactionChange]) -> None:
        """Take over what was stored."""
        for change in changes:
            match change:
                case DeleteAnswer():
                    if self._created_at_ms.get(change.key, change.created_at_ms + 1) <= change.created_at_ms:
                        del self._created_at_ms[change.key]
                case StoredAnswer():
                    self._created_at_ms.pop(change.key, None)
                    self._created_at_ms[change.key] = change.created_at_ms
                case _:
                    raise AssertionError(change)
