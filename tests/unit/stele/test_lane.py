"""One partition's producer: each record once and in order, whatever the network and the broker do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from stele.errors import (
    ConnectionLostError,
    InvalidRequestError,
    RecordTooLargeError,
    SteleClientError,
    ThrottledError,
    error_for,
)
from stele.producing.lane import Batch, Identity, Lane
from stele.producing.options import ProducerOptions
from stele.records import OutgoingRecord
from stele.wire.error_codes import ErrorCode
from stele.wire.record_batch import BatchBuilder, read_header

from app.errors import SteleError
from app.storage.sequences import ProducerSequences, check_batch, sequences_after
from app.tcp.errors import error_code_of

SIZE = 100


def record(number: int) -> OutgoingRecord:
    return OutgoingRecord(0, None, str(number).encode(), [])


def lane_with(*, records: int = 0, in_flight_max: int = 5, **options: float) -> Lane:
    lane = Lane(
        ProducerOptions(**{"batch_bytes_max": SIZE, **options}),  # pyright: ignore[reportArgumentType]
        in_flight_max=in_flight_max,
    )
    lane.identity = Identity(1, 0)
    for number in range(records):
        lane.append(record(number), number, size=SIZE, now_s=0.0)
    return lane


def take(lane: Lane, now_s: float = 0.0) -> Batch:
    batch = lane.take(now_s)
    assert batch is not None
    return batch


# ── batching ──


def test_without_linger_a_record_is_sent_at_once_when_nothing_is_under_way() -> None:
    lane = lane_with(batch_bytes_max=1000)
    lane.append(record(0), 0, size=SIZE, now_s=0.0)
    first = take(lane)
    lane.append(record(1), 1, size=SIZE, now_s=0.0)
    lane.append(record(2), 2, size=SIZE, now_s=0.0)
    assert lane.take(0.0) is None
    lane.acked(first, 0.0)
    assert take(lane).tokens == [1, 2]


def test_a_full_batch_does_not_wait_for_the_one_under_way() -> None:
    lane = lane_with(records=2)
    assert [take(lane).tokens, take(lane).tokens] == [[0], [1]]


def test_no_more_batches_are_under_way_than_allowed() -> None:
    lane = lane_with(records=7)
    assert [take(lane).tokens for _ in range(5)] == [[0], [1], [2], [3], [4]]
    assert lane.take(0.0) is None
    assert lane.wake_at_s() is None


def test_a_record_lingers_until_its_time_or_a_flush() -> None:
    lane = lane_with(linger_ms=20.0, batch_bytes_max=1000)
    lane.append(record(0), 0, size=SIZE, now_s=1.0)
    assert lane.take(1.019) is None
    assert lane.wake_at_s() == 1.02
    assert take(lane, 1.02).tokens == [0]
    lane.append(record(1), 1, size=SIZE, now_s=2.0)
    lane.flush()
    assert take(lane, 2.0).tokens == [1]


def test_a_record_larger_than_a_batch_is_a_batch() -> None:
    lane = lane_with()
    lane.append(record(0), 0, size=10 * SIZE, now_s=0.0)
    assert take(lane).tokens == [0]


# ── sequences ──


def test_sequences_count_records() -> None:
    lane = lane_with(batch_bytes_max=2 * SIZE, records=4)
    assert [take(lane).base_sequence, take(lane).base_sequence] == [0, 2]


def test_sequences_go_on_at_0_after_the_largest() -> None:
    lane = lane_with(records=2)
    lane.identity = Identity(1, 0, next_sequence=2**31 - 1)
    assert [take(lane).base_sequence, take(lane).base_sequence] == [2**31 - 1, 0]


def test_nothing_is_sent_without_an_identity() -> None:
    lane = lane_with(records=1)
    lane.identity = None
    assert lane.needs_identity(0.0)
    assert lane.take(0.0) is None
    lane.identity = Identity(7, 0)
    assert not lane.needs_identity(0.0)
    assert take(lane).producer_id == 7


def test_without_idempotence_there_are_no_sequences() -> None:
    lane = Lane(ProducerOptions(idempotent=False), in_flight_max=5)
    lane.append(record(0), 0, size=1, now_s=0.0)
    assert not lane.needs_identity(0.0)
    batch = take(lane)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


# ── failures ──


LOST = ConnectionLostError("lost")
OUT_OF_ORDER = error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "gap")


def test_a_retry_is_the_same_batch_with_the_same_sequence_in_the_same_order() -> None:
    lane = lane_with(records=3)
    batches = [take(lane) for _ in range(3)]
    for batch in batches:
        assert lane.take(0.0) is None
        assert lane.failed(batch, LOST, 0.0, retry_pause_s=0.5) == []
    assert lane.take(0.4) is None
    assert lane.wake_at_s() == 0.5
    again = [take(lane, 0.5) for _ in range(3)]
    assert again == batches
    assert [batch.base_sequence for batch in again] == [0, 1, 2]


def test_nothing_new_is_sent_before_every_batch_under_way_has_its_answer() -> None:
    lane = lane_with(records=3, in_flight_max=2)
    first, second = take(lane), take(lane)
    lane.failed(first, LOST, 0.0, retry_pause_s=0.0)
    assert lane.take(0.0) is None
    lane.acked(second, 0.0)
    assert take(lane) is first


def test_a_batch_after_a_missing_one_keeps_its_sequence() -> None:
    lane = lane_with(records=2)
    first, second = take(lane), take(lane)
    lane.failed(first, ThrottledError("slow down"), 0.0, retry_pause_s=0.0)
    lane.failed(second, OUT_OF_ORDER, 0.0, retry_pause_s=0.0)
    assert [take(lane).base_sequence, take(lane).base_sequence] == [0, 1]


def test_a_batch_after_a_rejected_one_takes_its_sequence() -> None:
    lane = lane_with(records=2)
    first, second = take(lane), take(lane)
    lane.failed(first, InvalidRequestError("never"), 0.0, retry_pause_s=0.0)
    assert lane.failed(second, OUT_OF_ORDER, 0.0, retry_pause_s=0.0) == [first]
    assert take(lane) is second
    assert second.base_sequence == 0
    assert lane.identity is not None
    assert lane.identity.producer_id == 1


def test_a_lane_with_unknown_outcomes_continues_in_the_next_epoch() -> None:
    lane = lane_with(records=2, in_flight_max=1, delivery_timeout_s=10)
    first = take(lane)
    assert lane.failed(first, LOST, 10.0, retry_pause_s=0.0) == [first]
    # The second would have waited as long; it is young here so that it is still tried.
    lane.append(record(2), 2, size=SIZE, now_s=10.0)
    assert [batch.tokens for batch in lane.expire(10.0)] == [[1]]
    batch = take(lane, 10.0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 1, 0)


def test_a_batch_whose_predecessor_the_broker_lacks_is_sent_in_the_next_epoch() -> None:
    lane = lane_with(records=1)
    batch = take(lane)
    lane.failed(batch, OUT_OF_ORDER, 0.0, retry_pause_s=0.0)
    assert take(lane) is batch
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1, 1, 0)


def test_what_an_earlier_attempt_still_brings_is_refused() -> None:
    """A broker that was cut off from the database commits late, and has forgotten the producer meanwhile."""
    lane, broker = lane_with(records=1), BrokerModel()
    lane.identity = Identity(1, 0, next_sequence=146)
    batch = take(lane)
    late = replace(batch)
    lane.failed(batch, LOST, 0.0, retry_pause_s=0.0)
    lane.failed(take(lane), OUT_OF_ORDER, 0.0, retry_pause_s=0.0)
    assert broker.produce(take(lane)) is None
    refusal = broker.produce(late)
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert broker.log == [0]


def test_batches_behind_one_whose_predecessor_is_missing_go_to_the_next_epoch_with_it() -> None:
    lane = lane_with(records=3, in_flight_max=2)
    first, second = take(lane), take(lane)
    lane.failed(first, OUT_OF_ORDER, 0.0, retry_pause_s=0.0)
    assert lane.failed(second, LOST, 0.0, retry_pause_s=0.0) == []
    assert [take(lane), take(lane)] == [first, second]
    assert [(b.producer_epoch, b.base_sequence) for b in (first, second)] == [(1, 0), (1, 1)]


def test_after_the_last_epoch_a_lane_needs_another_producer_id() -> None:
    lane = lane_with(records=1)
    lane.identity = Identity(1, 2**15 - 1)
    lane.failed(take(lane), OUT_OF_ORDER, 0.0, retry_pause_s=0.0)
    assert lane.needs_identity(0.0)


def test_a_duplicate_is_a_success_only_if_an_attempt_may_have_succeeded() -> None:
    duplicate = error_for(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "stored")
    lane = lane_with(records=1)
    batch = take(lane)
    assert not lane.is_stored_already(batch, duplicate)
    lane.failed(batch, LOST, 0.0, retry_pause_s=0.0)
    assert lane.is_stored_already(take(lane), duplicate)


def test_a_fenced_producer_stops() -> None:
    lane = lane_with(records=1)
    batch = take(lane)
    fenced = error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "newer instance")
    assert lane.failed(batch, fenced, 0.0, retry_pause_s=0.0) == [batch]


def test_a_batch_that_is_too_large_is_split() -> None:
    lane = lane_with(batch_bytes_max=4 * SIZE, records=4)
    lane.failed(take(lane), RecordTooLargeError("too large"), 0.0, retry_pause_s=0.0)
    first, second = take(lane), take(lane)
    assert (first.tokens, second.tokens) == ([0, 1], [2, 3])
    assert (first.base_sequence, second.base_sequence) == (0, 2)
    assert first.size + second.size == 4 * SIZE


def test_a_record_that_is_too_large_alone_fails() -> None:
    lane = lane_with(records=1)
    batch = take(lane)
    assert lane.failed(batch, RecordTooLargeError("too large"), 0.0, retry_pause_s=0.0) == [batch]


def test_what_waits_longer_than_the_delivery_timeout_fails() -> None:
    lane = lane_with(records=2, delivery_timeout_s=5, in_flight_max=1)
    assert lane.expire(4.9) == []
    assert [batch.tokens for batch in lane.expire(5.0)] == [[0], [1]]
    assert lane.is_idle


def test_an_error_that_cannot_pass_fails_at_once() -> None:
    lane = lane_with(records=1)
    batch = take(lane)
    error = SteleClientError("no")
    assert lane.failed(batch, error, 0.0, retry_pause_s=0.0) == [batch]
    assert batch.error is error
    assert lane.is_idle


# ── everything at once, against a model of the broker ──


@dataclass
class BrokerModel:
    """The log of a partition, with the rules of the broker; a new producer begins with sequence 0."""

    log: list[int] = field(default_factory=list[int])
    producers: dict[int, ProducerSequences] = field(default_factory=dict[int, ProducerSequences])

    def produce(self, batch: Batch) -> SteleClientError | None:
        builder = BatchBuilder(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        for record in batch.records:
            builder.append(timestamp_ms=record.timestamp, value=record.value)
        header = read_header(builder.build())
        known = self.producers.get(batch.producer_id)
        try:
            if check_batch(header, known, needs_state=True) is not None:
                return None
        except SteleError as error:
            return error_for(error_code_of(error), str(error))
        placed = replace(header, base_offset=len(self.log))
        self.producers[batch.producer_id] = sequences_after(known, placed)
        self.log.extend(int(r.value or b"") for r in batch.records)
        return None


FATES = ["stored"] * 6 + ["throttled", "rejected", "lost before", "lost after", "too large", "timed out"]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_record_is_stored_once_and_in_order_whatever_happens(data: st.DataObject) -> None:
    options = ProducerOptions(batch_bytes_max=3 * SIZE, delivery_timeout_s=50.0)
    lane = Lane(options, in_flight_max=data.draw(st.sampled_from([1, 2, 5])))
    broker = BrokerModel()
    under_way: deque[Batch] = deque()
    acked: list[int] = []
    failed: dict[int, bool] = {}  # number → it may have been stored all the same
    state: dict[str, Any] = {"now": 0.0, "number": 0, "identity": 0}

    def settle(batches: list[Batch]) -> None:
        for batch in batches:
            for number in batch.tokens:
                failed[number] = batch.is_outcome_unknown

    def fail(batch: Batch, error: SteleClientError) -> None:
        if lane.is_stored_already(batch, error):
            acked.extend(batch.tokens)
            settle(lane.acked(batch, state["now"]))
        else:
            settle(lane.failed(batch, error, state["now"], retry_pause_s=0.0))

    def send() -> None:
        while True:
            if lane.needs_identity(state["now"]):
                state["identity"] += 1
                lane.identity = Identity(state["identity"], 0)
            batch = lane.take(state["now"])
            if batch is None:
                return
            under_way.append(batch)

    def answer(fate: str) -> None:
        """What becomes of the oldest batch under way; a broken connection takes the others with it."""
        batch = under_way.popleft()
        if fate == "rejected":
            fail(batch, InvalidRequestError("never"))
        elif fate == "throttled":
            fail(batch, ThrottledError("slow down"))
        elif fate == "too large":
            fail(batch, RecordTooLargeError("too large"))
        elif fate in ("lost before", "lost after"):
            if fate == "lost after":
                broker.produce(batch)
            others = list(under_way)
            under_way.clear()
            for lost in [batch, *others]:
                fail(lost, ConnectionLostError("lost"))
        else:
            error = broker.produce(batch)
            if fate == "timed out" and error is None:
                error = error_for(ErrorCode.REQUEST_TIMED_OUT, "stored, but not synced in time")
            if error is None:
                acked.extend(batch.tokens)
                settle(lane.acked(batch, state["now"]))
            else:
                fail(batch, error)

    for _ in range(data.draw(st.integers(1, 40))):
        step = data.draw(st.sampled_from(["append", "append", "send", "answer", "answer", "time"]))
        if step == "append":
            lane.append(record(state["number"]), state["number"], size=SIZE, now_s=state["now"])
            state["number"] += 1
        elif step == "send":
            send()
        elif step == "answer" and under_way:
            answer(data.draw(st.sampled_from(FATES)))
        elif step == "time":
            state["now"] += data.draw(st.sampled_from([0.1, 30.0]))
            settle(lane.expire(state["now"]))
    # The trouble is over: everything that is left gets through, or has been given up on before.
    for _ in range(1000):
        if lane.is_idle:
            break
        send()
        while under_way:
            answer("stored")
        settle(lane.expire(state["now"]))
    assert lane.is_idle

    assert len(set(broker.log)) == len(broker.log), "a record was stored twice"
    assert broker.log == sorted(broker.log), "the order was not kept"
    assert set(acked) <= set(broker.log), "an acked record is lost"
    assert sorted([*acked, *failed]) == list(range(state["number"])), "a record has no outcome, or two"
    for number, may_be_stored in failed.items():
        assert may_be_stored or number not in broker.log, "a record that surely failed is stored"
