"""Key indexes: what is written is found, whatever its size, and nothing that is damaged is believed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from stele.wire import record_batch as rb

from app.storage.keys.growing_keys import Share
from app.storage.keys.key_index import (
    KeyHasher,
    KeyIndex,
    check_key_index,
    entries_of,
    open_key_index,
    salt_of,
    write_key_index,
)
from app.storage.keys.key_scan import SegmentPart
from app.storage.keys.segment_keys import SegmentKeys
from app.storage.segments.segment import Segment
from tests.support.compaction import Keyed, batch, no_pacing
from tests.support.simulated_files import SimulatedFiles

DIRECTORY = Path("/data")
PATH = DIRECTORY / "00000000000000000000.keyindex"
SALT = bytes(range(16))
BASE = 7


def entries(offsets: dict[bytes, int]) -> bytes:
    hasher = KeyHasher(SALT)
    return b"".join(sorted(hasher.hash_of(key) + offset.to_bytes(8) for key, offset in offsets.items()))


def files_with(offsets: dict[bytes, int]) -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_dir(DIRECTORY)
    write_key_index(
        files, PATH, [entries(offsets)], salt=SALT, log_bytes=1000, next_offset=99, pace=no_pacing
    )
    return files


def opened(files: SimulatedFiles, *, log_bytes: int = 1000, next_offset: int = 99) -> KeyIndex | None:
    return open_key_index(
        files, PATH, log_bytes=log_bytes, next_offset=next_offset, salt=SALT, pace=no_pacing
    )


@pytest.mark.parametrize("count", [0, 1, 2, 255, 256, 257, 5_000])
def test_every_key_is_found_and_no_other(count: int) -> None:
    offsets = {b"k%d" % number: number for number in range(count)}
    index = opened(files_with(offsets))
    assert index is not None
    hasher = KeyHasher(SALT)
    for key, offset in offsets.items():
        assert index.find(hasher.hash_of(key)) == offset
    for number in range(count, count + 200):
        assert index.find(hasher.hash_of(b"k%d" % number)) == -1
    assert index.find(b"\0" * 16) == index.find(b"\xff" * 16) == -1
    index.close()


def test_an_index_of_another_state_of_its_segment_does_not_count() -> None:
    files = files_with({b"a": 1})
    assert opened(files, log_bytes=999) is None
    assert opened(files, next_offset=100) is None
    assert salt_of(files, PATH) == SALT
    assert open_key_index(files, PATH, log_bytes=1000, next_offset=99, salt=bytes(16), pace=no_pacing) is None


def test_a_damaged_index_does_not_count() -> None:
    files = files_with({b"k%d" % number: number for number in range(20)})
    good = bytes(files.content(PATH))
    assert check_key_index(good) is None
    assert len(list(entries_of(good))) == 20
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1
        files.damage(PATH, bytes(bad))
        # Two bytes of the header mean nothing, and are in its CRC all the same.
        assert opened(files) is None, position
        assert check_key_index(bytes(bad)) is not None
    for size in range(0, len(good), 7):
        files.damage(PATH, good[:size])
        assert opened(files) is None
        assert check_key_index(good[:size]) is not None
    assert check_key_index(good + b"x") is not None


class Log:
    """A segment that records are appended to, and the model of its keys."""

    def __init__(self) -> None:
        self.files = SimulatedFiles()
        self.files.make_dir(DIRECTORY)
        self.segment = Segment(
            self.files, DIRECTORY, BASE, index_interval_bytes=100, created_ms=0, may_have_holes=True
        )
        self.segment.create()
        self.last: dict[bytes, int] = {}

    def append(self, keys: list[bytes]) -> None:
        offset = self.segment.next_offset
        raw = batch([Keyed(key) for key in keys], offset)
        self.segment.append(raw, [rb.read_header(raw)], now_ms=0)
        self.last |= {key: offset + number for number, key in enumerate(keys)}


@pytest.mark.parametrize("seed", range(5))
def test_keys_in_memory_follow_the_segment_and_become_its_index(seed: int) -> None:
    random, log, hasher = Random(seed), Log(), KeyHasher(SALT)
    keys = SegmentKeys(hasher, memory_bytes=1 << 20)
    for _ in range(20):
        for _ in range(random.randint(1, 4)):
            log.append([b"k%d" % random.randrange(2000) for _ in range(random.randint(1, 100))])
        assert keys.catch_up(SegmentPart.of(log.segment), no_pacing)
        assert keys.next_offset == log.segment.next_offset
        for key in random.sample(sorted(log.last), 10):
            assert keys.find(hasher.hash_of(key)) == log.last[key]
        assert keys.find(hasher.hash_of(b"never")) == -1
    assert b"".join(keys.sorted_entries(no_pacing)) == entries(log.last)
    shares = b""
    for number in range(4):
        part = SegmentKeys(hasher, memory_bytes=1 << 20, share=Share(number, 4))
        assert part.catch_up(SegmentPart.of(log.segment), no_pacing)
        shares += b"".join(part.sorted_entries(no_pacing))
        part.close()
    assert shares == entries(log.last), "the shares follow each other in the order of the hashes"
    keys.close()


def test_keys_that_do_not_fit_are_refused() -> None:
    log = Log()
    log.append([b"k%d" % number for number in range(1000)])
    keys = SegmentKeys(KeyHasher(SALT), memory_bytes=24 * 700)
    assert not keys.catch_up(SegmentPart.of(log.segment), no_pacing)
    keys.close()
