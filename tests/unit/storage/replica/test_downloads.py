"""Every piece is checked: what was damaged on its way is read again, what is damaged in the bucket is reported."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import crc32c
import pytest

from app.storage.replica import downloads as module
from app.storage.replica.downloads import DamagedPiece, Downloads, PatientStore
from app.storage.replica.restore_plan import Piece, PlannedFile
from app.storage.shared.store.object_store import ByteRange, ObjectStoreError
from tests.support.model_store import ModelStore

FILE = PlannedFile("orders-0/0.log", "orders-0", 0)
_LARGE = 20_000_000


def piece_of(key: str, data: bytes, position: int, length: int) -> Piece:
    return Piece(
        key, position, length, crc32c.crc32c(data[position : position + length]), FILE, position + 1000
    )


class Flaky(ModelStore):
    """Damages, or refuses, as many of the first answers as it is told."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(objects)
        self.damaged = self.refused = 0
        self.asked: list[tuple[str, int]] = []
        self.under_way = self.most_under_way = 0

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        self.asked.append((key, len(ranges)))
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.refused:
            self.refused -= 1
            raise ObjectStoreError("503 Slow Down")
        found = await super().get_ranges(key, ranges)
        if self.damaged:
            self.damaged -= 1
            found[-1] = bytes([found[-1][0] ^ 1]) + found[-1][1:]
        return found


class Run:
    """What came of a download."""

    def __init__(self, store: ModelStore, pieces: Sequence[Piece]) -> None:
        self.written: dict[int, bytes] = {}
        self.damaged: list[DamagedPiece] = []
        self.counted = 0

        def sink(piece: Piece, start: int, data: bytes) -> None:
            self.written[piece.at + start] = data

        def count(piece: Piece) -> None:
            self.counted += piece.length

        asyncio.run(
            Downloads(PatientStore(store), sink=sink, verified=count).run(pieces, self.damaged.append)
        )

    @property
    def bytes(self) -> bytes:
        """What was written, from the first position on."""
        return b"".join(data for _, data in sorted(self.written.items()))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_MS", 0)


@pytest.fixture
def data() -> bytes:
    return random.randbytes(1000)


def test_small_pieces_of_an_object_are_one_request(data: bytes) -> None:
    store = Flaky({"d/1": data, "d/2": data})
    pieces = [piece_of(key, data, position, 100) for position in range(0, 1000, 100) for key in store.objects]

    run = Run(store, pieces)

    assert sorted(store.asked) == [("d/1", 10), ("d/2", 10)]
    assert (run.bytes, run.counted, run.damaged) == (data, 2000, [])


def test_a_large_piece_is_read_in_blocks() -> None:
    data = random.randbytes(_LARGE)
    store = Flaky({"s/1": data})

    run = Run(store, [piece_of("s/1", data, 3, _LARGE - 3)])

    assert store.asked == [("s/1", 1)] * 3
    assert run.bytes == data[3:]
    assert run.counted == _LARGE - 3


def test_requests_are_limited(data: bytes) -> None:
    store = Flaky({f"d/{n}": data for n in range(50)})

    Run(store, [piece_of(key, data, 0, 1000) for key in store.objects])

    assert store.most_under_way == 8


@pytest.mark.parametrize("size", [1000, _LARGE])
def test_what_was_damaged_on_its_way_is_read_again(size: int) -> None:
    data = random.randbytes(size)
    store = Flaky({"d/1": data})
    store.damaged = 1

    run = Run(store, [piece_of("d/1", data, 0, size)])

    assert (run.bytes, run.counted, run.damaged) == (data, size, [])


@pytest.mark.parametrize("size", [1000, _LARGE])
def test_what_is_damaged_in_the_bucket_is_reported_with_its_partition(size: int) -> None:
    data = random.randbytes(size)
    store = Flaky({"d/1": bytes([data[0] ^ 1]) + data[1:]})

    run = Run(store, [piece_of("d/1", data, 0, size)])

    assert list(map(str, run.damaged)) == [f"d/1, of orders-0: bytes 0 to {size} are damaged"]
    assert run.counted == 0


def test_one_damaged_piece_of_a_request_is_told_from_the_others(data: bytes) -> None:
    store = Flaky({"d/1": data[:500] + bytes([data[500] ^ 1]) + data[501:]})

    run = Run(store, [piece_of("d/1", data, position, 100) for position in range(0, 1000, 100)])

    assert [one.piece.position for one in run.damaged] == [500]
    assert run.counted == 900


def test_a_missing_object_is_reported_for_each_piece(data: bytes) -> None:
    run = Run(Flaky({}), [piece_of("d/1", data, 0, 10), piece_of("d/1", data, 10, 10)])

    assert [one.problem for one in run.damaged] == ["the object does not exist"] * 2


def test_of_an_object_that_is_cut_the_rest_is_read(data: bytes) -> None:
    store = Flaky({"d/1": data[:550]})

    run = Run(store, [piece_of("d/1", data, position, 100) for position in range(0, 1000, 100)])

    assert {one.problem for one in run.damaged} == {"the object has only 550 bytes"}
    assert [one.piece.position for one in run.damaged] == [500, 600, 700, 800, 900]
    assert run.bytes == data[:500]


def test_a_store_that_refuses_for_a_moment_is_asked_again(data: bytes) -> None:
    store = Flaky({"d/1": data})
    store.refused = 5

    assert Run(store, [piece_of("d/1", data, 0, 1000)]).bytes == data


def test_a_mistake_in_the_set_up_is_not_repeated(data: bytes) -> None:
    class Wrong(Flaky):
        async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
            self.asked.append((key, len(ranges)))
            raise ObjectStoreError("<Code>InvalidAccessKeyId</Code>")

        async def get(self, key: str) -> bytes:
            raise ObjectStoreError("<Code>InvalidAccessKeyId</Code>")

    store = Wrong({"d/1": data})

    with pytest.raises(ObjectStoreError, match="InvalidAccessKeyId"):
        Run(store, [piece_of("d/1", data, 0, 1000)])
    assert len(store.asked) == 1


def test_a_store_that_refuses_for_long_ends_the_restore(data: bytes) -> None:
    class Dead(Flaky):
        async def get(self, key: str) -> bytes:
            raise ObjectStoreError("503 Slow Down")

    store = Dead({"d/1": data})
    store.refused = 1000

    with pytest.raises(ObjectStoreError, match="503"):
        Run(store, [piece_of("d/1", data, 0, 1000)])
