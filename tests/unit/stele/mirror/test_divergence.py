"""Up to where a copy and its source have the same batches."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from stele.mirror.divergence import Comparison, common_end, compare
from stele.wire import record_batch as rb

from tests.unit.broker.test_copies import copied, placed, sealed


def batches(count: int, word: bytes = b"a", *, first: int = 0) -> list[bytes]:
    """Return batches of three records each."""
    return [copied(3 * number, *(word + b"%d" % number for _ in range(3))) for number in range(first, count)]


def compacted(batch: bytes, *, horizon: bool = False) -> bytes:
    """Return what compaction may have left of a batch."""
    header = rb.read_header(batch)
    if horizon:
        changed = bytearray(batch)
        changed[22] |= 0x40
        changed[34] ^= 1
        return bytes(sealed(changed))
    builder = rb.BatchBuilder()
    first = next(iter(rb.decode_records(batch, header)))
    builder.append(timestamp_ms=-1, value=first.value)
    return placed(builder.build(), header.base_offset, holes=header.last_offset_delta)


A, B = batches(5), batches(5, b"b")


@pytest.mark.parametrize(
    ("ours", "theirs", "same_until", "differs_at"),
    [
        (A, A, 15, -1),
        (A[:3], A, 9, -1),
        (A, [*A[:2], *B[2:]], 6, 6),
        (A, B, -1, 0),
        ([], A, -1, -1),
        (A, [], -1, -1),
        # Other boundaries: no compaction makes them.
        (A, [copied(0, b"a0"), copied(1, b"a1", b"a2")], -1, 0),
        # What compaction has touched says nothing.
        (A, [compacted(A[0]), *A[1:]], 15, -1),
        ([*A[:2], compacted(A[2])], [*A[:2], B[2]], 6, -1),
        (A[:3], [*A[:2], compacted(A[2], horizon=True)], 6, -1),
        (A[:3], [compacted(one) for one in A], -1, -1),
        # A batch that is gone on one side.
        ([A[0], A[2]], A, 9, -1),
    ],
)
def test_batches_are_compared(
    ours: list[bytes], theirs: list[bytes], same_until: int, differs_at: int
) -> None:
    found = compare(b"".join(ours), b"".join(theirs))
    assert found == Comparison(same_until=same_until, differs_at=differs_at)


def test_a_batch_that_is_cut_short_is_known_by_its_header() -> None:
    assert compare(A[0], A[0][: rb.HEADER_BYTES]).same_until == 3
    assert compare(A[0], B[0][: rb.HEADER_BYTES + 1]).differs_at == 0
    assert compare(A[0], A[0][:20]) == Comparison(same_until=-1, differs_at=-1)


def from_offset(log: Sequence[bytes], offset: int, count: int) -> bytes:
    return b"".join([one for one in log if rb.read_header(one).next_offset > offset][:count])


def searched(ours: Sequence[bytes], theirs: Sequence[bytes], start: int, count: int) -> int | None:
    reads = 0

    async def read(offset: int) -> tuple[bytes, bytes]:
        nonlocal reads
        reads += 1
        return from_offset(ours, offset, count), from_offset(theirs, offset, count)

    ends = [rb.read_header(log[-1]).next_offset if log else 0 for log in (ours, theirs)]
    found = asyncio.run(common_end(start, min(ends), read))
    assert reads <= 12
    return found


@pytest.mark.parametrize("same", [0, 1, 2, 17, 99, 100])
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("start", [0, 60])
def test_the_first_difference_is_found(same: int, count: int, start: int) -> None:
    ours = batches(100)
    theirs = [*ours[:same], *batches(130, b"other", first=same)]
    assert searched(ours, theirs, start, count) == (3 * same if 3 * same > start else None)
    assert searched(theirs, ours, start, count) == (3 * same if 3 * same > start else None)


def test_where_compaction_hides_it_less_is_called_the_same() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        same = rng.randrange(50)
        ours = [*batches(same), *batches(60, b"other", first=same)]
        theirs = batches(70)
        ours, theirs = (
            [compacted(one) if rng.random() < 0.3 else one for one in log if rng.random() < 0.8]
            for log in (ours, theirs)
        )
        if not ours or not theirs:
            continue
        assert (searched(ours, theirs, 0, 3) or 0) <= 3 * same
