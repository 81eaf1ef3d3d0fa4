"""Checks the sequences of idempotent producers (KIP-98).

It depends on what the partition knows of the producer.

Pure: each engine keeps ``ProducerSequences`` where it keeps its state, and calls ``check_batch``
before it gives a batch its offset. The same rules then hold for all engines.

A producer numbers its records per partition. For each producer id a partition knows the epoch and the
last five batches, as many as a client may have in flight. A retry of any of them is answered with the
offsets of the first time.

A partition that knows nothing of a producer accepts any first sequence (KIP-360): what it knew may have
been lost with deleted records, or because the producer sent nothing for ``producer_id_expiration_ms``.
What was stored before that first batch is not known, so an earlier sequence is out of order, not a
duplicate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from stele.wire.record_batch import BatchHeader

from ..errors import (
    DuplicateSequence,
    InvalidBatch,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
)

# Kafka's bound on max.in.flight.requests.per.connection with idempotence.
BATCHES_REMEMBERED = 5
SEQUENCE_MODULUS = 2**31


class StoredBatch(NamedTuple):
    """A batch that is in the log."""

    base_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.last_sequence - self.base_sequence) % SEQUENCE_MODULUS


@dataclass(slots=True)
class ProducerSequences:
    """A partition's record of the batches of one producer.

    ``is_whole``: the partition has seen the epoch from sequence 0 on, so all sequences before ``batches``
    are stored.
    """

    epoch: int
    is_whole: bool
    batches: deque[StoredBatch] = field(default_factory=lambda: deque[StoredBatch](maxlen=BATCHES_REMEMBERED))

    def note(self, header: BatchHeader) -> None:
        """Note a batch of this epoch that is stored at ``header.base_offset``."""
        self.batches.append(StoredBatch(header.base_sequence, last_sequence(header), header.base_offset))


def sequences_after(known: ProducerSequences | None, header: BatchHeader) -> ProducerSequences:
    """Return what is known once a batch is stored.

    That is ``known``, changed, or the start of a new epoch.
    """
    if known is None or known.epoch != header.producer_epoch:
        known = ProducerSequences(header.producer_epoch, is_whole=header.base_sequence == 0)
    known.note(header)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """A producer as operators see it; ``last_timestamp_ms``: its last batch arrived.

    ``last_sequence`` and ``last_offset`` are those of its last record in the partition, -1 if none
    is known. ``transaction_start_offset`` is the first offset of its open transaction, and
    ``coordinator_epoch`` that of its last marker; -1 if there is none.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    transaction_start_offset: int = -1


def check_batch(
    header: BatchHeader,
    known: ProducerSequences | None,
    *,
    newest_epoch: int | None = None,
    has_open_transaction: bool = False,
    needs_state: bool = False,
    refused: tuple[int, int] | None = None,
) -> StoredBatch | None:
    """Check whether a batch of a producer with an id is its next one in the partition.

    Returns None if it is, or the stored batch that it repeats.

    ``newest_epoch`` is that of a named producer, which a partition learns only from a batch. With
    ``needs_state`` a producer of which nothing is known must begin with sequence 0 (KIP-890). ``refused``
    has the epoch and first sequence of a batch that was not stored for now, of a producer of which nothing
    is known: a later batch must not take its place.

    Raises:
        ProducerFenced: its epoch is older than the producer's.
        OutOfOrderSequence: a batch before it is missing.
        DuplicateSequence: it is stored, but its offsets are no longer known.
        InvalidBatch: its epoch or sequence is negative.
        InvalidTransactionState: it is not transactional, and a transaction of the producer is open.
    """
    epoch = header.producer_epoch
    if newest_epoch is not None and epoch < newest_epoch:
        raise ProducerFenced(producer_id=header.producer_id, epoch=epoch, current_epoch=newest_epoch)
    if epoch < 0 or header.base_sequence < 0:
        raise InvalidBatch("an idempotent batch needs a producer epoch and a base sequence")
    if known is None:
        _check_first(header, needs_state=needs_state, refused=refused)
        return None
    if epoch < known.epoch:
        raise ProducerFenced(producer_id=header.producer_id, epoch=epoch, current_epoch=known.epoch)
    is_same_epoch = epoch == known.epoch
    last = last_sequence(header)
    if is_same_epoch:
        for stored in known.batches:
            if stored.base_sequence == header.base_sequence and stored.last_sequence == last:
                return stored
    if has_open_transaction and not header.is_transactional:
        raise InvalidTransactionState(
            None,
            f"producer {header.producer_id} has an open transaction and sent a batch outside of it; "
            "end the transaction first",
        )
    if not known.batches and not known.is_whole:
        # Nothing is known of its sequences: they were lost in a gap, or only a marker was stored.
        return None
    expected = 0
    if is_same_epoch and known.batches:
        expected = (known.batches[-1].last_sequence + 1) % SEQUENCE_MODULUS
        is_stored = known.is_whole and _is_before(header.base_sequence, last, expected)
        if header.base_sequence != expected and is_stored:
            raise DuplicateSequence(producer_id=header.producer_id, sequence=header.base_sequence)
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            producer_id=header.producer_id, sequence=header.base_sequence, expected=expected
        )
    return None


def _check_first(header: BatchHeader, *, needs_state: bool, refused: tuple[int, int] | None) -> None:
    """Check a batch of a producer of which nothing is known.

    It is a new producer, or one whose state is lost and that continues. It must not skip a batch that
    was refused and that it is about to send again.
    """
    epoch, sequence = refused or (-1, 0)
    is_skipping = epoch == header.producer_epoch and sequence < header.base_sequence
    if is_skipping or (needs_state and header.base_sequence):
        raise OutOfOrderSequence(
            producer_id=header.producer_id,
            sequence=header.base_sequence,
            expected=sequence if is_skipping else 0,
        )


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence of the last record of a batch; they wrap from 2^31 - 1 to 0."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS


def _is_before(base_sequence: int, last: int, expected: int) -> bool:
    """Return whether the whole batch is before ``expected``; sequences wrap around."""
    half = SEQUENCE_MODULUS // 2
    return (expected - base_sequence) % SEQUENCE_MODULUS < half and (
        expected - 1 - last
    ) % SEQUENCE_MODULUS < half
