"""What a commit says to batches that name a transactional id (ADR-0055)."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.errors import (
    InvalidTransactionState,
    ProducerFenced,
    SteleError,
    TransactionAbortable,
    UnknownProducerMapping,
)
from app.storage.shared.commit_rules import Decision, IdRow, claimants, decide_commit
from app.storage.shared.meta import LogRow, ObjectWrite, PartitionId, RunWrite, TransactionClaim
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce
from tests.support.shared_meta import TRANSACTIONAL, UPLOADERS, batch

ORDERS, AUDIT = TopicPartition("orders", 0), TopicPartition("audit", 0)
LOGS = {ORDERS: 1, AUDIT: 2}
PRODUCER = 7


def id_row(
    *, name: str = "t", epoch: int = 3, is_ongoing: bool = True, added: TopicPartition = ORDERS
) -> IdRow:
    return IdRow(name, epoch, is_ongoing, frozenset({added}))


def decide(
    row: IdRow | None,
    *claims: TopicPartition,
    name: str = "t",
    epoch: int = 3,
    adds: bool = False,
    is_abortable_known: bool = True,
) -> Decision:
    """Commit one batch for each partition of ``claims``."""
    produce = TransactionalProduce(
        transactional_id=name, adds_partitions=adds, is_abortable_known=is_abortable_known
    )
    header = batch(1, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=0, attributes=TRANSACTIONAL)
    written = ObjectWrite(
        key="w/1.1",
        uploader=UPLOADERS[0],
        size=1000,
        runs=[
            RunWrite(
                log_id=LOGS[partition],
                position=at * header.size,
                headers=[header],
                claims={0: TransactionClaim(produce, partition)},
            )
            for at, partition in enumerate(claims)
        ],
    )
    assert claimants([written]) == [PRODUCER]
    logs = {
        log_id: LogRow(
            log_id=log_id,
            partition_id=PartitionId(UUID(int=log_id), 0),
            log_start=0,
            next_offset=10,
            size_bytes=0,
            unmerged_bytes=0,
            merged_until=0,
        )
        for log_id in LOGS.values()
    }
    return decide_commit([written], logs, {}, {}, ids={} if row is None else {PRODUCER: row})


def error_of(decision: Decision, at: int = 0) -> SteleError | None:
    return decision.answer[0][at].places[0].error


def test_a_batch_of_the_open_transaction_is_stored() -> None:
    decision = decide(id_row(), ORDERS)
    assert error_of(decision) is None
    assert (list(decision.opened.values()), decision.begun) == ([10], [])


@pytest.mark.parametrize(
    ("row", "error", "claim"),
    [
        (None, UnknownProducerMapping, {}),
        (id_row(name="another"), UnknownProducerMapping, {}),
        (id_row(epoch=4), ProducerFenced, {}),
        (id_row(epoch=2), ProducerFenced, {}),
        (id_row(added=AUDIT), TransactionAbortable, {}),
        (id_row(added=AUDIT), InvalidTransactionState, {"is_abortable_known": False}),
        # The transaction has ended: what comes late is not in the next one.
        (id_row(is_ongoing=False), TransactionAbortable, {}),
        (id_row(is_ongoing=False, epoch=4), ProducerFenced, {"adds": True}),
    ],
)
def test_any_other_batch_is_refused_and_changes_nothing(
    row: IdRow | None, error: type[SteleError], claim: dict[str, bool]
) -> None:
    decision = decide(
        row, ORDERS, adds=claim.get("adds", False), is_abortable_known=claim.get("is_abortable_known", True)
    )
    assert type(error_of(decision)) is error
    assert (decision.runs, decision.opened, decision.begun, decision.producers) == ([], {}, [], {})


def test_a_batch_that_may_add_its_partition_begins_the_transaction_once() -> None:
    decision = decide(id_row(is_ongoing=False), ORDERS, AUDIT, adds=True)
    assert [error_of(decision, at) for at in (0, 1)] == [None, None]
    assert (len(decision.opened), decision.begun) == (2, [PRODUCER])


def test_a_batch_that_may_add_its_partition_joins_the_open_transaction() -> None:
    decision = decide(id_row(added=AUDIT), ORDERS, adds=True)
    assert (error_of(decision), decision.begun) == (None, [])
