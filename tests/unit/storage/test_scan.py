"""The scan finds each batch and each corrupt range, and is not misled by batches inside values."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb

from app.storage.segments import scan
from app.storage.segments.scan import CorruptRange, scan_batches
from tests.support.batches import batch_of
from tests.support.simulated_files import SimulatedFiles

LOG = Path("/log")


def log_of(*values: bytes, base_offset: int = 0) -> list[bytes]:
    batches: list[bytes] = []
    for number, value in enumerate(values):
        batch = batch_of([value])
        rb.assign_offsets(batch, 0, base_offset + number, 0)
        batches.append(bytes(batch))
    return batches


def scanned(data: bytes, expected_offset: int = 0) -> list[rb.BatchHeader | CorruptRange]:
    files = SimulatedFiles()
    files.create_file(LOG, data)
    return list(scan_batches(files.open(LOG), expected_offset=expected_offset))


def offsets(results: list[rb.BatchHeader | CorruptRange]) -> list[int | tuple[int, int]]:
    return [
        (result.offset, result.next_offset) if isinstance(result, CorruptRange) else result.base_offset
        for result in results
    ]


def test_every_batch_is_found_with_its_position() -> None:
    batches = log_of(b"a", b"bb", b"ccc", base_offset=7)
    results = scanned(b"".join(batches), 7)
    assert offsets(results) == [7, 8, 9]
    positions = [header.position for header in results if isinstance(header, rb.BatchHeader)]
    assert positions == [0, len(batches[0]), len(batches[0]) + len(batches[1])]


@pytest.mark.parametrize("window_bytes", [64, 100, 1000, 4096])
def test_batches_may_lie_across_windows(window_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "WINDOW_BYTES", window_bytes)
    values = [bytes([number]) * (number * 17 % 200) for number in range(40)]
    batches = log_of(*values)
    assert offsets(scanned(b"".join(batches))) == list(range(40))
    batches[13] = bytes(len(batches[13]))
    assert offsets(scanned(b"".join(batches))) == [*range(13), (13, 14), *range(14, 40)]


@pytest.mark.parametrize("field", range(61))
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_corrupt_header_costs_only_its_batch(field: int, bit: int) -> None:
    batches = log_of(*(b"%d" % number * 40 for number in range(6)))
    broken = bytearray(batches[2])
    broken[field] ^= 1 << bit
    results = scanned(b"".join([*batches[:2], bytes(broken), *batches[3:]]))
    if field in range(12, 16):
        assert offsets(results) == [0, 1, 2, 3, 4, 5], "the leader epoch is not covered by the CRC"
    else:
        assert offsets(results) == [0, 1, (2, 3), 3, 4, 5]


def test_several_corrupt_ranges_are_reported_separately() -> None:
    batches = log_of(*(b"%d" % number * 40 for number in range(9)))
    for number in (1, 2, 5):
        batches[number] = Random(number).randbytes(len(batches[number]))
    assert offsets(scanned(b"".join(batches))) == [0, (1, 3), 3, 4, (5, 6), 6, 7, 8]


def test_an_offset_that_does_not_follow_is_corrupt() -> None:
    first, second, third = log_of(b"a", b"b", b"c")
    assert offsets(scanned(first + first + second + third)) == [0, (1, 2), 2]
    # The base offset is not covered by the CRC: the third may as well be the second with a flipped bit.
    assert offsets(scanned(first + third)) == [0, (1, 1)]


@pytest.mark.parametrize("inner_offset", [0, 1, 2, 3, 50])
def test_batches_inside_a_value_are_not_taken_for_ours(inner_offset: int) -> None:
    inner = b"".join(log_of(*(b"inner %d" % number for number in range(5)), base_offset=inner_offset))
    batches = log_of(b"first", b"x" * 10 + inner + b"y" * 10, b"third", b"fourth")
    whole = b"".join(batches)
    at = len(batches[0])
    # Torn anywhere: nothing after the first batch belongs to this log.
    for size in range(at + 1, at + len(batches[1])):
        assert offsets(scanned(whole[:size])) == [0, (1, 1)]
    # Damaged anywhere: the third follows the first.
    for byte in (*range(12), 16, *range(17, len(batches[1]), 7)):
        broken = bytearray(whole)
        broken[at + byte] ^= 0x10
        assert offsets(scanned(bytes(broken))) == [0, (1, 2), 2, 3], byte


def test_a_file_of_zeros_or_noise_is_one_corrupt_range() -> None:
    for data in (bytes(5000), b"\x02" * 5000, Random(3).randbytes(5000)):
        (results,) = scanned(data)
        assert isinstance(results, CorruptRange)
        assert (results.position, results.end_position, results.offset, results.next_offset) == (
            0,
            5000,
            0,
            0,
        )
    assert scanned(b"") == []
