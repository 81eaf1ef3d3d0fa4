"""What a commit says to batches that expect an end of their log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from stele.wire.record_batch import BatchHeader

from app.errors import UnexpectedEnd
from app.storage.shared.commit_rules import Decision, IdRow, NewRun, ProducerKey, decide_commit
from app.storage.shared.meta import (
    ExpectedEnd,
    LogRow,
    ObjectWrite,
    PartitionId,
    ProducerRow,
    RunWrite,
    TransactionClaim,
)
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce
from tests.support.shared_meta import TRANSACTIONAL, UPLOADERS, batch

ORDERS = TopicPartition("orders", 0)
LOG_ID, END = 1, 10
# A batch, and the end that it expects.
Conditional = tuple[BatchHeader, int | None]


def decide(
    *objects: Sequence[Conditional],
    producers: Mapping[ProducerKey, ProducerRow] | None = None,
    claim: TransactionClaim | None = None,
    ids: Mapping[int, IdRow] | None = None,
) -> Decision:
    """Commit objects with one run each, to a log that ends at 10."""
    written = [
        ObjectWrite(
            key=f"w/{number}",
            uploader=UPLOADERS[0],
            size=1000,
            runs=[
                RunWrite(
                    log_id=LOG_ID,
                    position=0,
                    headers=[header for header, _ in run],
                    claims={} if claim is None else {0: claim},
                    expected_ends={
                        at: ExpectedEnd(offset, ORDERS)
                        for at, (_, offset) in enumerate(run)
                        if offset is not None
                    },
                )
            ],
        )
        for number, run in enumerate(objects)
    ]
    log = LogRow(
        log_id=LOG_ID,
        partition_id=PartitionId(UUID(int=1), 0),
        log_start=0,
        next_offset=END,
        size_bytes=0,
        unmerged_bytes=0,
        merged_until=0,
    )
    return decide_commit(written, {LOG_ID: log}, producers or {}, {}, ids=ids)


def places(decision: Decision) -> list[int | tuple[int | str, int]]:
    """Return the base offset of each batch, or the end that it expected with the actual one."""
    return [
        place.base_offset if place.error is None else refusal(place.error)
        for of_object in decision.answer
        for run in of_object
        for place in run.places
    ]


def refusal(error: Exception) -> tuple[int | str, int]:
    assert isinstance(error, UnexpectedEnd)
    assert (error.topic, error.partition) == ORDERS
    return error.expected, error.log_end_offset


def test_the_end_is_that_after_all_batches_before_it_in_all_objects_of_the_commit() -> None:
    decision = decide(
        [(batch(2), 10), (batch(1), 10), (batch(3), 12)], [(batch(1), None), (batch(1), 15), (batch(1), 16)]
    )
    assert places(decision) == [10, (10, 12), 12, 15, (15, 16), 16]
    assert decision.logs[LOG_ID].next_offset == 17
    # What was refused is in no run: it splits the run that it was in.
    assert [(run.base_offset, run.last_offset, run.object_at) for run in decision.runs] == [
        (10, 11, 0),
        (12, 14, 0),
        (15, 15, 1),
        (16, 16, 1),
    ]
    assert all(isinstance(run, NewRun) for run in decision.runs)


def test_a_batch_that_is_stored_already_is_a_repeat_whatever_it_expects() -> None:
    key = ProducerKey(LOG_ID, 7)
    known = {key: ProducerRow(7, 0, True, ((0, 1, 4),), 0)}
    again = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    following = batch(1, producer_id=7, producer_epoch=0, base_sequence=2)
    decision = decide([(again, 4), (following, 4), (following, 10)], producers=known)
    assert places(decision) == [4, (4, 10), 10]
    assert decision.answer[0][0].places[0].is_duplicate
    assert decision.producers[key].batches == ((0, 1, 4), (2, 2, 10))


def test_a_refused_batch_changes_nothing() -> None:
    """Neither what is known of its producer, nor the state of its transaction."""
    header = batch(1, producer_id=7, producer_epoch=3, base_sequence=0, attributes=TRANSACTIONAL)
    produce = TransactionalProduce(transactional_id="t", adds_partitions=True)
    claim, ids = TransactionClaim(produce, ORDERS), {7: IdRow("t", 3, False, frozenset())}
    decision = decide([(header, 9)], claim=claim, ids=ids)
    assert places(decision) == [(9, 10)]
    assert (decision.runs, decision.logs, decision.producers) == ([], {}, {})
    assert (decision.opened, decision.begun) == ({}, [])
    decision = decide([(header, 10)], claim=claim, ids=ids)
    assert places(decision) == [10]
    assert (list(decision.opened.values()), decision.begun) == ([10], [7])
