"""Large batches are unpacked in a thread for every reader, and large JSON records are decoded in turns of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec
import pytest
from stele.wire import messages as m
from stele.wire import record_batch as rb

from app.api.records import large_records
from app.api.records.encoding import RecordEncoding
from app.api.records.form import RecordForm
from app.api.records.json_records import NewRecord
from app.api.records.upload import Upload
from app.api.routes import produce as produce_route
from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.reading.fetch import PartitionFetch
from app.composition import open_broker
from app.groups.leases.lease import LeasedPartition
from app.groups.leases.reads import leased_records
from app.settings import Settings
from app.tcp.binary.handlers import simple
from app.tcp.binary.handlers.context import BinaryListener
from tests.support.turns import Turns

TOPIC = "orders"
COUNT = 3000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Broker]:
    """A broker whose topic has a large compressed batch and then a small one."""
    opened = await open_broker(Settings(data_dir=tmp_path))
    await opened.create_topic(TOPIC, partitions=1)
    for count in (COUNT, 2):
        builder = rb.BatchBuilder(compression=rb.Compression.GZIP)
        for number in range(count):
            builder.append(timestamp_ms=1, value=b"%d %s" % (number, bytes(range(256)) * (number % 3)))
        await opened.produce(TOPIC, 0, builder.build(), acks=Acks.LEADER).wait(1000)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Collect the size of each body that is decompressed, and whether that was on the loop's thread."""
    seen: list[tuple[int, bool]] = []
    loop_thread, decompress = threading.get_ident(), rb.decompress_after

    def watched(head: bytearray, codec: rb.Compression, body: bytes) -> bytearray:
        seen.append((len(body), threading.get_ident() == loop_thread))
        return decompress(head, codec, body)

    monkeypatch.setattr(rb, "decompress_after", watched)
    return seen


def check(unpacked: list[tuple[int, bool]]) -> None:
    (large, is_large_on_loop), (small, is_small_on_loop) = unpacked
    assert large > 16 * 1024 > small
    assert (is_large_on_loop, is_small_on_loop) == (False, True)


async def test_a_consume_unpacks_a_large_batch_in_a_thread(
    broker: Broker, unpacked: list[tuple[int, bool]]
) -> None:
    unused = cast("Any", None)
    listener = BinaryListener(broker=broker, groups=unused, transactions=unused, host="", port=0)
    buffers = await simple.consume(listener, m.ConsumeRequest(topic=TOPIC, offset=0, batch_size=10_000))
    size = sum(map(len, [buffers] if isinstance(buffers, bytes) else buffers))
    assert size > sum(256 * (number % 3) for number in range(COUNT))
    check(unpacked)


async def test_a_group_poll_unpacks_a_large_batch_in_a_thread(
    broker: Broker, unpacked: list[tuple[int, bool]]
) -> None:
    request = PartitionFetch(topic=TOPIC, partition=0, offset=1, max_bytes=1 << 20)
    (fetched,) = await broker.fetch([request], max_bytes=1 << 20)
    leased = LeasedPartition(topic=TOPIC, partition=0, offset=1, next_offset=COUNT + 1)
    reader = broker.decoded.reader()
    offsets = [
        record.offset async for records in leased_records(leased, fetched, reader) for record in records
    ]
    assert offsets == list(range(1, COUNT + 1))
    check(unpacked)


class _AnyUpload:
    """Takes every record."""

    def __init__(self) -> None:
        self.records: list[NewRecord] = []

    def size_of(self, record: NewRecord) -> int:
        return len(record.value or b"")

    def check(self, record: NewRecord, index: int) -> None:
        pass

    async def add_in_turns(self, record: NewRecord) -> None:
        self.records.append(record)

    async def room(self) -> None:
        pass


@pytest.mark.parametrize(("value_bytes", "count", "turns"), [(400_000, 5, 10), (10, 100, 1)])
async def test_a_large_json_record_is_decoded_in_two_turns_of_its_own(
    monkeypatch: pytest.MonkeyPatch, value_bytes: int, count: int, turns: int
) -> None:
    text = msgspec.json.encode({"records": [{"value": {"text": "x" * value_bytes}}] * count})
    counting, upload = Turns(), _AnyUpload()
    seen: list[int] = []

    def watch(module: ModuleType, name: str) -> None:
        decode: Callable[..., object] = getattr(module, name)

        def watched(*given: object) -> object:
            seen.append(counting.count)
            return decode(*given)

        monkeypatch.setattr(module, name, watched)

    watch(large_records, "parse_record")
    watch(large_records, "to_record")
    await asyncio.sleep(0)
    before = counting.count
    await produce_route._gather_json(cast("Upload", upload), text, RecordEncoding(None), cast("Any", None))
    counting.close()
    assert len(upload.records) == count
    assert len(set(seen)) == turns
    if value_bytes > 1000:
        assert seen[0] > before, "the body was decoded in a turn of its own"


def test_a_value_is_checked_to_be_json_without_making_objects_of_it() -> None:
    def shown(value: bytes) -> object:
        batch = rb.build_values([value], 1000)
        (record,) = rb.decode_records(batch)
        return msgspec.json.decode(RecordForm(parse_values=True).block(0, [record], end=b""))["value"]

    assert shown(b'{"a": [1, 2.5, null, "\\u00e9"]}') == {"a": [1, 2.5, None, "é"]}
    for text in (b'{"a":1,}', b"01", b'"\x01"', b'"\\x"', b"[1", b"1 2", b"", b"nul"):
        assert shown(text) == text.decode()
    # Valid JSON, although it is no number of Python or of any 64-bit machine.
    batch = rb.build_values([b"1e999"], 1000)
    assert b'"value":1e999' in RecordForm(parse_values=True).block(0, list(rb.decode_records(batch)))
