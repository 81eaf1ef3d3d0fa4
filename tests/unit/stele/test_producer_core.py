"""What both producers decide without I/O: what is due, when to ask for a producer id, who gets which outcome."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from stele import BrokerUnavailableError, InvalidRequestError, ProduceError, RecordMetadata, SteleClientError
from stele.errors import ClosedError
from stele.producing.core import Due, ProducerCore
from stele.producing.lane import Batch
from stele.producing.options import ProducerOptions
from stele.serializers import bytes_serializer
from stele.transport.base import BACKOFF_MAX_S
from stele.wire.messages import Durability

Acked = Future[RecordMetadata]
AWAY = BrokerUnavailableError("away")


def make_core(**options: float) -> ProducerCore[bytes | str]:
    settings = ProducerOptions(**options)  # pyright: ignore[reportArgumentType]
    return ProducerCore("t", bytes_serializer, settings, keeps_order=True)


def put(core: ProducerCore[bytes | str], partition: int = 0, *, is_counted: bool = True) -> Acked:
    record, size = core.outgoing(b"v", None, (), None)
    assert core.reserve(size)
    acked: Acked = Future()
    core.put(record, size, partition, 1, acked, 100.0, is_counted=is_counted)
    return acked


def partitions(due: Due) -> list[int]:
    return [partition for partition, _ in due.batches]


def sent(core: ProducerCore[bytes | str], now_s: float = 100.0) -> Batch:
    ((_, batch),) = core.due(now_s).batches
    return batch


def receipts(batch: Batch) -> list[RecordMetadata | SteleClientError]:
    return [RecordMetadata("t", 0, n, 5, Durability.SYNCED) for n, _ in enumerate(batch.records)]


def test_batches_of_all_partitions_are_due_once_there_is_a_producer_id() -> None:
    core = make_core()
    put(core, 0)
    put(core, 1)
    assert core.due(100.0) == ([], True, None)
    core.set_producer_id(7, 0)
    due = core.due(100.0)
    assert sorted(partitions(due)) == [0, 1]
    assert [batch.producer_id for _, batch in due.batches] == [7, 7]
    assert core.due(100.0) == ([], False, None)


def test_a_batch_that_lingers_is_due_at_its_time() -> None:
    core = make_core(linger_ms=50)
    core.set_producer_id(7, 0)
    put(core)
    due = core.due(100.0)
    assert (due.batches, due.wake_at_s) == ([], pytest.approx(100.05))
    assert partitions(core.due(100.06)) == [0]


def test_a_producer_id_that_is_not_to_be_had_is_asked_for_again_after_a_pause() -> None:
    core = make_core()
    acked = put(core)
    core.lack_producer_id(AWAY, 100.0)
    assert core.due(100.1) == ([], False, 100.0 + BACKOFF_MAX_S)
    assert core.due(100.0 + BACKOFF_MAX_S).needs_producer_id
    assert not acked.done()


def test_a_refused_producer_id_fails_what_needs_it_and_nothing_later() -> None:
    core = make_core()
    acked = put(core)
    core.lack_producer_id(InvalidRequestError("no"), 100.0)
    assert isinstance(acked.exception(timeout=0), InvalidRequestError)
    later = put(core)
    assert core.due(100.1).needs_producer_id
    assert not later.done()


def test_what_expires_before_there_is_a_producer_id_fails_with_the_last_error() -> None:
    core = make_core(delivery_timeout_s=5)
    acked = put(core)
    core.lack_producer_id(AWAY, 100.0)
    core.due(106.0)
    assert isinstance(acked.exception(timeout=0), BrokerUnavailableError)
    assert core.buffered_bytes == 0


def test_flush_raises_the_failures_of_counted_records_by_their_index() -> None:
    core = make_core()
    core.set_producer_id(7, 0)
    put(core)
    put(core, is_counted=False)
    put(core)
    batch = sent(core)
    outcomes = receipts(batch)
    outcomes[1] = outcomes[2] = InvalidRequestError("no")
    core.finish(0, batch, outcomes, 100.1)
    with pytest.raises(ProduceError, match="1 of 2 records") as caught:
        core.raise_failures()
    assert list(caught.value.errors) == [1]
    core.raise_failures()


def test_a_cancelled_future_gets_no_outcome_and_its_failure_is_raised_nevertheless() -> None:
    core = make_core()
    core.set_producer_id(7, 0)
    acked = put(core)
    batch = sent(core)
    assert acked.cancel()
    core.finish(0, batch, [InvalidRequestError("no")], 100.1)
    with pytest.raises(ProduceError):
        core.raise_failures()


def test_an_abandoned_record_keeps_its_outcome_whatever_comes_later() -> None:
    core = make_core()
    core.set_producer_id(7, 0)
    acked = put(core)
    batch = sent(core)
    core.abandon()
    error = acked.exception(timeout=0)
    assert isinstance(error, ClosedError)
    assert error.is_outcome_unknown
    with pytest.raises(ProduceError):
        core.raise_failures()
    core.finish(0, batch, [InvalidRequestError("no")], 100.1)
    core.raise_failures()


def test_a_restart_forgets_records_and_returns_their_futures() -> None:
    core = make_core()
    core.set_producer_id(7, 0)
    futures = [put(core), put(core)]
    assert core.restart() == futures
    assert (core.buffered_bytes, core.sent_count, core.due(200.0)) == (0, 0, ([], False, None))
    put(core)
    assert core.due(200.0).needs_producer_id
