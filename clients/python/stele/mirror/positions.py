"""Where a copy goes on, what of a fetch it takes, and when it must not go on. Pure.

The position of a copy is its own log end offset, so whatever crashed, it goes on from there, exactly once. Everything
before it must be what the source has there: ``begin`` and ``is_diverging`` compare by leader epochs (KIP-101, KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..wire import record_batch as rb
from ..wire.framing import FRAME_BYTES_MAX
from ..wire.messages.mirrors import BATCHES_PER_APPEND_MAX

NO_EPOCH = -1
# What a frame has besides the batches: the name of a topic is the largest of it.
PIECE_BYTES_MAX = FRAME_BYTES_MAX - 1024
# So that the broker's other requests get their turns between them.
PIECE_BYTES_USUAL = 1 << 17
# For a cluster, where an append waits for its object, and delays no other client.
PIECE_BYTES_SHARED = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """What the target has of a partition; ``epoch`` is that of its last batch, -1 if there is none."""

    start: int
    end: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """What the source has of a partition.

    ``epoch_end``: where the epoch of the copy's last batch ends there, as ``(epoch, offset)``; None if nobody asked.
    """

    start: int
    end: int
    epoch_end: tuple[int, int] | None = None


class Diverged(Exception):
    """The copy has what the source lacks; only a person can decide which of them is right.

    ``Target.advice`` says what to do.
    """


class Damaged(Exception):
    """Bytes of the source are no batches of a log; another fetch may bring sound ones."""


class NotCopyable(Exception):
    """The source has what no copy can have."""


def must_compare(copy: CopyState, source: SourceState) -> bool:
    """Return whether they have offsets in common, so that the epochs say whether the records are the same."""
    return copy.epoch != NO_EPOCH and copy.end > source.start


def begin(copy: CopyState, source: SourceState) -> int:
    """Return the offset to fetch from; beyond the end of the copy if the source has deleted what is between.

    Raises:
        Diverged: the source lacks what the copy has.
    """
    if source.end < copy.end:
        raise Diverged(
            f"the source ends at {source.end}, and the copy at {copy.end}: the source has lost records, or was made anew"
        )
    if must_compare(copy, source) and source.epoch_end is not None:
        check_epoch(copy.end, copy.epoch, *source.epoch_end)
    return max(copy.end, source.start)


def check_epoch(copy_end: int, copy_epoch: int, epoch: int, end: int) -> None:
    """Compare the copy with the end of its last epoch at the source.

    ``epoch`` is the last one up to ``copy_epoch`` that the source has, and ``end`` is where it ends; both are -1 if it
    has none.

    Raises:
        Diverged: the source lacks what the copy has.
    """
    if epoch < 0 or end < 0:
        raise Diverged(
            f"the source does not know leader epoch {copy_epoch}, in which the copy's last records were written (it ends at "
            f"{copy_end}): the source was set back, or made anew"
        )
    if end < copy_end or epoch < copy_epoch:
        raise Diverged(
            f"the copy ends at {copy_end} with leader epoch {copy_epoch}, and at the source epoch {epoch} ends at {end}: "
            f"the source has lost records since, as after an unclean election"
        )


def differs(copy: CopyState, at: int) -> Diverged:
    """Return the error of a copy whose last records, from ``at`` on, are others at the source."""
    return Diverged(
        f"the source has other records than the copy from offset {at} on, or from earlier, and the copy ends at {copy.end}: "
        f"the source was set back, and has written others since"
    )


class Sample(NamedTuple):
    """A record of a copy; ``offset`` is the one that it has at the source, ``timestamp`` None if the copy has its own."""

    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None


def check_samples(samples: Sequence[Sample], records: rb.Buffer) -> None:
    """Compare records of a copy with those of the source at their offsets.

    Raises:
        Diverged: they are others.
    """
    wanted = {sample.offset: sample for sample in samples}
    for header in rb.iter_headers(records):
        if header.is_control or wanted.keys().isdisjoint(range(header.base_offset, header.next_offset)):
            continue
        for record in rb.decode_records(records, header):
            sample = wanted.get(record.offset)
            if sample is None:
                continue
            is_same_time = sample.timestamp is None or sample.timestamp == record.timestamp
            if not is_same_time or (sample.key, sample.value) != (record.key, record.value):
                raise Diverged(
                    f"the record with offset {record.offset} is another one in the copy, so it is not a copy of this log"
                )


class LeftOut(NamedTuple):
    """What consumers do not get of batches: records before an offset, and those of aborted transactions.

    ``aborted`` has the base offsets of batches.
    """

    before: int = 0
    aborted: frozenset[int] = frozenset()


NOTHING = LeftOut()


def aborted_batches(records: rb.Buffer, transactions: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Return the base offsets of batches whose transactions were aborted.

    ``transactions``: the producer id and the first offset of each aborted one, as a fetch returns them.
    """
    waiting = sorted(transactions, key=lambda one: one[1])
    if not waiting:
        return frozenset()
    aborted: set[int] = set()
    producers: set[int] = set()
    for header in rb.iter_headers(records):
        while waiting and waiting[0][1] <= header.last_offset:
            producers.add(waiting.pop(0)[0])
        if header.producer_id in producers and header.is_transactional:
            if header.is_control:
                producers.discard(header.producer_id)
            else:
                aborted.add(header.base_offset)
    return frozenset(aborted)


class Piece(NamedTuple):
    """Whole batches for one append: bytes from ``start`` to ``stop`` of the fetched ones."""

    start: int
    stop: int
    next_offset: int
    epoch: int


def cut(
    records: rb.Buffer,
    position: int,
    high_watermark: int,
    *,
    floor: int | None = None,
    piece_bytes: int = PIECE_BYTES_USUAL,
) -> list[Piece]:
    """Return what to append of a fetch at ``position``, in pieces of ``piece_bytes`` or one batch, which fit a frame.

    Batches before the position are left out, and so are those that reach past the high watermark, and a last one that is
    cut short. What is wrong counts only once it is the first. ``floor`` is the end of the copy, if that is before the
    position because the source has deleted what is between: the source may begin inside a batch, which is copied whole.

    Raises:
        Damaged: the first batch is not sound.
        Diverged: it begins before the end of the copy and ends after it.
        NotCopyable: it is too large, or older than the format of the log.
    """
    pieces: list[Piece] = []
    count = 0
    try:
        for header in _batches(records, position, position if floor is None else floor, high_watermark):
            start, stop = header.position, header.position + header.size
            is_full = count >= BATCHES_PER_APPEND_MAX
            if pieces and not is_full and stop - pieces[-1].start <= piece_bytes:
                start = pieces.pop().start
            else:
                count = 0
            pieces.append(Piece(start, stop, header.next_offset, header.partition_leader_epoch))
            count += 1
    except (Damaged, Diverged, NotCopyable):
        if not pieces:
            raise
    return pieces


def _batches(records: rb.Buffer, position: int, floor: int, high_watermark: int) -> Iterator[rb.BatchHeader]:
    """Yield the headers of the batches to append, which are checked."""
    at, expected, has_begun = 0, floor, False
    while len(records) - at >= rb.LOG_OVERHEAD_BYTES + 5:
        size = rb.LOG_OVERHEAD_BYTES + int.from_bytes(records[at + 8 : at + 12], "big", signed=True)
        magic = records[at + 16]
        if magic in (0, 1):
            raise NotCopyable(
                f"the source has records in message format {magic} from offset {position} on, which have no batches to copy; "
                "start the mirror where newer ones begin"
            )
        if size > PIECE_BYTES_MAX:
            raise NotCopyable(
                f"the batch at offset {position} has {size} bytes; at most {PIECE_BYTES_MAX} can be copied"
            )
        if len(records) - at < max(size, rb.HEADER_BYTES):
            return
        try:
            header = rb.read_header(records, at)
            if header.next_offset <= position and not has_begun:
                at += header.size
                continue
            if header.base_offset < expected:
                if has_begun:
                    raise Damaged(f"offset {header.base_offset} follows {expected} in a fetch at {position}")
                raise Diverged(
                    f"the copy ends at {floor}, inside a batch of the source (offsets {header.base_offset} to "
                    f"{header.last_offset}), so it is not a copy of this log"
                )
            if header.next_offset > high_watermark:
                return
            rb.check_batch(records, at)
        except rb.CorruptBatchError as error:
            raise Damaged(
                f"a batch of the source at offset {expected} or later is not sound: {error}"
            ) from error
        yield header
        at, expected, has_begun = at + header.size, header.next_offset, True
