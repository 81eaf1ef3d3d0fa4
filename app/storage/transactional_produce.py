"""The transaction that a produce request names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalProduce:
    """The transactional id of a produce request.

    ``adds_partitions``: a batch for a partition that is not in the transaction adds it, and begins
    the transaction with the first (KIP-890, Produce v12); otherwise it must have been added before.
    ``is_abortable_known``: the client understands ``TransactionAbortable`` (Produce v11).
    """

    transactional_id: str
    adds_partitions: bool
    is_abortable_known: bool = True
