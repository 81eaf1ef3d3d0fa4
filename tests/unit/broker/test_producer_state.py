"""Idempotent producers: each batch once, in order, also after a restart."""

from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.wire.record_batch import BatchHeader

from app.broker.producing.producer_state import ProducerStates
from app.errors import DuplicateSequence, InvalidBatch, OutOfOrderSequence, ProducerFenced
from app.storage.sequences import SEQUENCE_MODULUS
from app.work_budget import at_once
from tests.support.batches import header_of


class FixedClock:
    def __init__(self) -> None:
        self.time_ms = 1_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


def states_with(*counts: int, first_sequence: int = 0) -> ProducerStates:
    """Producer 1, with a batch of each of ``counts`` records in the log."""
    states = ProducerStates(FixedClock())
    offset, sequence = 0, first_sequence
    for count in counts:
        states.apply(header_of(base_sequence=sequence, count=count, base_offset=offset))
        offset += count
        sequence = (sequence + count) % SEQUENCE_MODULUS
    return states


@pytest.mark.parametrize("sequence", [0, 3, SEQUENCE_MODULUS - 1])
def test_a_producer_without_state_begins_where_it_likes(sequence: int) -> None:
    states = ProducerStates(FixedClock())
    assert states.check(header_of(base_sequence=sequence)) is None
    states.apply(header_of(base_sequence=sequence))
    with pytest.raises(OutOfOrderSequence) as error:
        states.check(header_of(base_sequence=(sequence + 2) % SEQUENCE_MODULUS))
    assert error.value.expected == (sequence + 1) % SEQUENCE_MODULUS


def test_what_came_before_the_first_known_batch_is_not_called_stored() -> None:
    states = states_with(2, first_sequence=10)
    # It may never have arrived: to answer that it is a duplicate would lose it.
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(base_sequence=0, count=10))
    restored = ProducerStates(FixedClock())
    restored.restore(states.snapshot())
    with pytest.raises(OutOfOrderSequence):
        restored.check(header_of(base_sequence=0, count=10))


def test_a_producer_does_not_begin_after_a_batch_that_was_refused_for_now() -> None:
    states = ProducerStates(FixedClock())
    first, second = header_of(base_sequence=0, count=2), header_of(base_sequence=2)
    assert states.check(first) is None
    states.refused(first)
    # It was in flight already: stored now, it would leave no place for the first.
    with pytest.raises(OutOfOrderSequence) as error:
        states.check(second)
    assert error.value.expected == 0
    assert states.check(header_of(producer_epoch=1, base_sequence=2)) is None
    assert states.check(first) is None
    states.apply(first)
    assert states.check(second) is None


def test_batches_follow_each_other() -> None:
    states = states_with(3, 2)
    assert states.check(header_of(base_sequence=5)) is None
    with pytest.raises(OutOfOrderSequence) as error:
        states.check(header_of(base_sequence=6))
    assert (error.value.producer_id, error.value.sequence, error.value.expected) == (1, 6, 5)


def test_a_retry_of_any_of_the_last_five_batches_gets_its_first_offsets() -> None:
    states = states_with(1, 2, 3, 1, 2, 3)
    sequence = offset = 0
    for number, count in enumerate((1, 2, 3, 1, 2, 3)):
        retry = header_of(base_sequence=sequence, count=count)
        # As many as a Kafka producer may have in flight.
        if number >= 6 - 5:
            stored = states.check(retry)
            assert stored is not None
            assert (stored.base_offset, stored.last_offset) == (offset, offset + count - 1)
        else:
            with pytest.raises(DuplicateSequence):
                states.check(retry)
        sequence += count
        offset += count


def test_a_retry_with_other_bounds_is_not_taken_for_the_stored_batch() -> None:
    states = states_with(3)
    for count in (1, 2):
        with pytest.raises(DuplicateSequence):
            states.check(header_of(base_sequence=0, count=count))
    with pytest.raises(OutOfOrderSequence):
        # Its last record is not stored.
        states.check(header_of(base_sequence=0, count=4))
    with pytest.raises(DuplicateSequence):
        states.check(header_of(base_sequence=2, count=1))


def test_checking_changes_nothing() -> None:
    states = states_with(2)
    for _ in range(3):
        assert states.check(header_of(base_sequence=2)) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(base_sequence=3))


@pytest.mark.parametrize("first_sequence", [SEQUENCE_MODULUS - 4, SEQUENCE_MODULUS - 3, SEQUENCE_MODULUS - 1])
def test_sequences_wrap_to_zero(first_sequence: int) -> None:
    states = states_with(3, 2, first_sequence=first_sequence)
    expected = (first_sequence + 5) % SEQUENCE_MODULUS
    assert states.check(header_of(base_sequence=expected)) is None
    retried = states.check(header_of(base_sequence=first_sequence, count=3))
    assert retried is not None
    assert (retried.base_offset, retried.last_offset) == (0, 2)
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(base_sequence=expected + 1))
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(base_sequence=(first_sequence - 1) % SEQUENCE_MODULUS))


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    states = ProducerStates(FixedClock())
    states.apply(header_of(producer_epoch=4, count=2))
    with pytest.raises(ProducerFenced) as error:
        states.check(header_of(producer_epoch=3, base_sequence=2))
    assert (error.value.epoch, error.value.current_epoch) == (3, 4)
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(producer_epoch=5, base_sequence=2))
    assert states.check(header_of(producer_epoch=5, base_sequence=0)) is None
    # Still the old one: nothing of the new one is in the log yet.
    assert states.check(header_of(producer_epoch=4, base_sequence=2)) is None
    states.apply(header_of(producer_epoch=5, base_offset=2))
    with pytest.raises(ProducerFenced):
        states.check(header_of(producer_epoch=4, base_sequence=2))


def test_producers_do_not_know_each_other() -> None:
    states = states_with(3)
    assert states.check(header_of(producer_id=2)) is None
    states.apply(header_of(producer_id=2, count=7, base_offset=3))
    assert states.check(header_of(producer_id=1, base_sequence=3)) is None
    assert states.check(header_of(producer_id=2, base_sequence=7)) is None
    assert len(states) == 2


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_an_idempotent_batch_needs_epoch_and_sequence(epoch: int, sequence: int) -> None:
    with pytest.raises(InvalidBatch):
        ProducerStates(FixedClock()).check(header_of(producer_epoch=epoch, base_sequence=sequence))


def test_batches_without_a_producer_leave_no_state() -> None:
    states = ProducerStates(FixedClock())
    states.apply(header_of(producer_id=-1, producer_epoch=-1, base_sequence=-1))
    assert len(states) == 0


def test_a_producer_that_was_silent_too_long_is_forgotten_and_goes_on_where_it_was() -> None:
    clock = FixedClock()
    states = ProducerStates(clock)
    states.apply(header_of(producer_id=1, count=2))
    clock.time_ms = 2_000
    states.apply(header_of(producer_id=2, count=2, base_offset=2))
    assert at_once(states.expire(1_500)) == 1
    assert len(states) == 1
    assert states.check(header_of(producer_id=1, base_sequence=2)) is None
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(producer_id=2, base_sequence=3))
    assert at_once(states.expire(1_500)) == 0
    assert len(states) == 1


def test_a_cleared_state_accepts_producers_from_before() -> None:
    states = states_with(3)
    states.clear()
    assert states.check(header_of(base_sequence=77)) is None
    # Once it is known again, it is held to its order.
    states.apply(header_of(base_sequence=77))
    with pytest.raises(OutOfOrderSequence):
        states.check(header_of(base_sequence=80))


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 5)),
        max_size=40,
    ),
    st.integers(0, 1),
)
def test_a_snapshot_brings_back_the_same_state(
    batches: list[tuple[int, int, int]], first_sequence: int
) -> None:
    clock = FixedClock()
    states = ProducerStates(clock)
    sequences: dict[tuple[int, int], int] = {}
    headers: list[BatchHeader] = []
    offset = 0
    for producer_id, epoch, count in batches:
        sequence = sequences.get((producer_id, epoch), first_sequence)
        header = header_of(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            count=count,
            base_offset=offset,
        )
        sequences[producer_id, epoch] = sequence + count
        offset += count
        clock.time_ms += 1
        states.apply(header)
        headers.append(header)
    restored = ProducerStates(clock)
    restored.restore(states.snapshot())
    assert restored.snapshot() == states.snapshot()
    headers += [header_of(producer_id=producer, base_sequence=at) for producer in range(5) for at in (0, 3)]
    for header in headers:
        assert outcome(restored, header) == outcome(states, header)


def outcome(states: ProducerStates, header: BatchHeader) -> object:
    try:
        return states.check(header)
    except (OutOfOrderSequence, DuplicateSequence, ProducerFenced) as error:
        return type(error), str(error)


def test_a_snapshot_that_is_damaged_anywhere_is_refused_and_changes_nothing() -> None:
    snapshot = states_with(3, 1).snapshot()
    states = states_with(2)
    before = states.snapshot()
    for byte in range(len(snapshot)):
        for bit in range(8):
            broken = bytearray(snapshot)
            broken[byte] ^= 1 << bit
            with pytest.raises(ValueError):
                states.restore(bytes(broken))
        with pytest.raises(ValueError):
            states.restore(snapshot[:byte])
    assert states.snapshot() == before


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_snapshot_of_version_1_is_read(is_complete: bool) -> None:
    batches = struct.pack(">iiq", 4, 5, 104) + struct.pack(">iiq", 6, 6, 106)
    body = struct.pack(">?i", is_complete, 1) + struct.pack(">qhqb", 7, 3, 1_000, 2) + batches
    states = ProducerStates(FixedClock())
    states.restore(struct.pack(">hI", 1, crc32c.crc32c(body)) + body)
    stored = states.check(header_of(producer_id=7, producer_epoch=3, base_sequence=4, count=2))
    assert stored is not None
    assert stored.base_offset == 104
    assert states.check(header_of(producer_id=7, producer_epoch=3, base_sequence=7)) is None
    # Only if no producer was ever forgotten it is known that what came before is stored.
    with pytest.raises(DuplicateSequence if is_complete else OutOfOrderSequence):
        states.check(header_of(producer_id=7, producer_epoch=3, base_sequence=0))


def test_a_snapshot_does_not_bring_back_those_who_were_forgotten() -> None:
    clock = FixedClock()
    states = ProducerStates(clock)
    states.apply(header_of(count=2))
    assert at_once(states.expire(clock.time_ms + 1)) == 1
    restored = ProducerStates(clock)
    restored.restore(states.snapshot())
    assert len(restored) == 0
    assert restored.check(header_of(base_sequence=2)) is None
