"""Produce v0–v2 and Fetch v0–v3: the message formats that Kafka had before record batches, byte by byte.

Messages are made and read here by hand, with ``struct`` and ``zlib`` alone.
"""

from __future__ import annotations

import gzip
import select
import struct
import zlib
from dataclasses import dataclass

import httpx
import pytest
from stele.broker_process import BrokerProcess
from stele.wire import record_batch as rb
from stele.wire.compression import Compression, compress, decompress
from stele.wire.error_codes import ErrorCode

from tests.support.kafka_peer import (
    WITHOUT_RETENTION,
    KafkaPeer,
    array,
    blob,
    create_topic,
    fetch,
    framed,
    only_partition,
    produce,
    put,
    records_in,
    text,
)
from tests.support.kafka_transactions import JAVA_4, TransactionalPeer

NO_TIMESTAMP = -1


ENVIRONMENT = WITHOUT_RETENTION


@dataclass(frozen=True)
class Message:
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    attributes: int = 0

    def encode(self, magic: int) -> bytes:
        body = struct.pack(">bb", magic, self.attributes)
        body += struct.pack(">q", self.timestamp_ms) if magic == 1 else b""
        body += blob(self.key) + blob(self.value)
        return struct.pack(">qiI", self.offset, 4 + len(body), zlib.crc32(body)) + body


def message_set(magic: int, *messages: Message) -> bytes:
    return b"".join(message.encode(magic) for message in messages)


def read_message_set(data: bytes, magic: int) -> list[Message]:
    """The messages, wrappers not opened; fails if a CRC or a length is wrong."""
    messages: list[Message] = []
    position = 0
    while position < len(data):
        offset, size, crc = struct.unpack_from(">qiI", data, position)
        body = data[position + 16 : position + 12 + size]
        assert zlib.crc32(body) == crc
        found_magic, attributes = struct.unpack_from(">bb", body)
        assert found_magic == magic
        at, timestamp_ms = 2, NO_TIMESTAMP
        if magic == 1:
            (timestamp_ms,) = struct.unpack_from(">q", body, at)
            at += 8
        key, at = _field(body, at)
        value, at = _field(body, at)
        assert at == len(body)
        messages.append(Message(offset, value, key, timestamp_ms, attributes))
        position += 12 + size
    return messages


def _field(body: bytes, at: int) -> tuple[bytes | None, int]:
    (length,) = struct.unpack_from(">i", body, at)
    return (None, at + 4) if length == -1 else (body[at + 4 : at + 4 + length], at + 4 + length)


def stored(peer: KafkaPeer, topic: str) -> list[rb.RecordView]:
    """What the log has, as batches, through a version that knows them."""
    batches = bytes(only_partition(peer.call(fetch(topic, 0), 4)).records)
    return [record for header in rb.iter_headers(batches) for record in rb.decode_records(batches, header)]


def test_produce_v0_and_fetch_v0_by_hand(peer: KafkaPeer) -> None:
    create_topic(peer, "hand")
    # Key "a", value "b"; the producer says nothing about offsets.
    sent = bytes.fromhex("00000000 00000000 00000010 a4ad2011 00 00 00000001 61 00000001 62".replace(" ", ""))

    produced = peer.ask(
        framed(0, 0, struct.pack(">hi", 1, 1000) + array(text("hand") + array(bytes(4) + blob(sent + sent))))
    )
    fetched = peer.ask(
        framed(
            1, 0, struct.pack(">iii", -1, 0, 1) + array(text("hand") + array(struct.pack(">iqi", 0, 0, 1 << 20)))
        )
    )  # fmt: skip

    assert produced == struct.pack(">i", 7) + array(text("hand") + array(struct.pack(">ihq", 0, 0, 0)))
    second = bytes.fromhex("00000000 00000001".replace(" ", "")) + sent[8:]
    assert fetched == struct.pack(">i", 7) + array(
        text("hand") + array(struct.pack(">ihq", 0, 0, 2) + blob(sent + second))
    )


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1)])
def test_a_message_set_becomes_records(
    broker: BrokerProcess, peer: KafkaPeer, version: int, magic: int
) -> None:
    topic = f"up-{version}-{magic}"
    create_topic(peer, topic)
    sent = message_set(
        magic,
        Message(0, b"one", b"k", 1_000),
        Message(0, None, b"k", 2_000),
        Message(0, b"", None, 3_000),
    )

    done = only_partition(peer.call(produce(topic, sent, acks=-1), version))

    assert (done.error_code, done.base_offset) == (0, 0)
    times = [1_000, 2_000, 3_000] if magic == 1 else [NO_TIMESTAMP] * 3
    assert [(r.offset, r.key, r.value, r.timestamp) for r in stored(peer, topic)] == [
        (0, b"k", b"one", times[0]),
        (1, b"k", None, times[1]),
        (2, None, b"", times[2]),
    ]
    over_http = httpx.get(f"{broker.http_url}/v1/topics/{topic}/partitions/0/records").json()["records"]
    assert [record["value"] for record in over_http] == ["one", None, ""]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_wrapper_is_taken_apart_and_made_again(
    peer: KafkaPeer, codec: Compression, magic: int
) -> None:
    topic = f"wrapped-{codec.name.lower()}-{magic}"
    create_topic(peer, topic)
    put(peer, topic, b"first")
    inner = [Message(number, f"line {number}".encode() * 20, b"k", 1_000 + number) for number in range(50)]
    body = compress(codec, message_set(magic, *inner))
    sent = message_set(magic, Message(49, body, None, 1_049, attributes=codec))
    assert len(sent) < len(message_set(magic, *inner)) / 2

    done = only_partition(peer.call(produce(topic, sent), 2))

    assert (done.error_code, done.base_offset) == (0, 1)
    assert [(r.offset, r.value) for r in stored(peer, topic)[1:]] == [
        (one.offset + 1, one.value) for one in inner
    ]
    plain, wrapper = read_message_set(only_partition(peer.call(fetch(topic, 0), 2 * magic)).records, magic)
    assert (plain.offset, plain.value) == (0, b"first")
    assert (wrapper.offset, wrapper.attributes) == (50, codec), "its offset is that of its last message"
    assert wrapper.value is not None
    if codec is Compression.LZ4 and magic == 0:
        # KAFKA-3160: the checksum of the frame's header is wrong, as those clients expect.
        return
    opened = read_message_set(decompress(codec, wrapper.value), magic)
    relative = 1 if magic == 0 else 0
    assert [(one.offset, one.value, one.key) for one in opened] == [
        (one.offset + relative, one.value, b"k") for one in inner
    ]


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_records_become_messages_of_the_format_that_the_version_knows(
    broker: BrokerProcess, peer: KafkaPeer, version: int, magic: int
) -> None:
    topic = f"down-{version}"
    create_topic(peer, topic)
    record = {"key": "k", "value": "v", "timestamp": 1_000, "headers": [{"key": "h", "value": "lost"}]}
    httpx.post(f"{broker.http_url}/v1/topics/{topic}/records", json={"records": [record]}).raise_for_status()
    put(peer, topic, b"a", b"b", timestamp_ms=2_000)

    found = only_partition(peer.call(fetch(topic, 0), version))

    assert (found.error_code, found.high_watermark) == (0, 3)
    times = [1_000, 2_000, 2_000] if magic == 1 else [NO_TIMESTAMP] * 3
    assert read_message_set(found.records, magic) == [
        Message(0, b"v", b"k", times[0]),
        Message(1, b"a", None, times[1]),
        Message(2, b"b", None, times[2]),
    ]


@pytest.mark.parametrize("version", range(4))
def test_a_fetch_of_old_from_inside_a_batch_begins_at_the_offset(peer: KafkaPeer, version: int) -> None:
    topic = f"old-inside-{version}"
    create_topic(peer, topic)
    put(peer, topic, b"a", b"b", b"c")
    found = only_partition(peer.call(fetch(topic, 1), version))
    assert [one.offset for one in read_message_set(found.records, version // 2)] == [1, 2]
    assert only_partition(peer.call(fetch(topic, 3), version)).records == b""
    assert only_partition(peer.call(fetch(topic, 4), version)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_long_poll_of_old_ends_with_an_append_too(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "old-bell")
    peer.post(fetch("old-bell", 0, max_wait_ms=30_000), 0)
    with KafkaPeer(broker) as other:
        put(other, "old-bell", b"ding")
    _, answer = peer.next_answer()
    assert [one.value for one in read_message_set(only_partition(answer).records, 0)] == [b"ding"]


@pytest.mark.parametrize("version", range(4))
def test_a_fetch_of_old_reads_on_after_markers(peer: KafkaPeer, version: int) -> None:
    topic = f"old-markers-{version}"
    topic_id = create_topic(peer, topic)
    producer = TransactionalPeer(peer, f"of {topic}", JAVA_4)
    assert producer.init() == 0
    for value in (b"a", b"b"):
        producer.put(topic, topic_id, value)
        assert producer.end(commit=True) == 0
    # A marker is at 1 and 3: alone within the limit, and at the end of the log.
    found = only_partition(peer.call(fetch(topic, 1, partition_max_bytes=1), version))
    assert [(one.offset, one.value) for one in read_message_set(found.records, version // 2)] == [(2, b"b")]
    assert only_partition(peer.call(fetch(topic, 3), version)).records == b""


def test_a_long_poll_of_old_does_not_end_with_a_marker(broker: BrokerProcess, peer: KafkaPeer) -> None:
    topic_id = create_topic(peer, "old-marker-bell")
    producer = TransactionalPeer(peer, "of old-marker-bell", JAVA_4)
    assert producer.init() == 0
    producer.put("old-marker-bell", topic_id, b"a")
    assert producer.end(commit=True) == 0
    peer.post(fetch("old-marker-bell", 1, max_wait_ms=30_000), 0)
    with KafkaPeer(broker) as other:
        put(other, "old-marker-bell", b"ding")
    _, answer = peer.next_answer()
    assert [one.offset for one in read_message_set(only_partition(answer).records, 0)] == [2]


def test_a_client_too_old_for_zstd_gets_an_error(peer: KafkaPeer) -> None:
    create_topic(peer, "zstd")
    builder = rb.BatchBuilder(compression=Compression.ZSTD)
    builder.append(timestamp_ms=1_000, value=b"x" * 1000)
    assert only_partition(peer.call(produce("zstd", builder.build()), 7)).error_code == 0
    for version in range(4):
        found = only_partition(peer.call(fetch("zstd", 0), version))
        assert (found.error_code, found.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, b"")


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


GOOD = message_set(0, Message(0, b"value", b"key"))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(damaged(GOOD), id="a wrong CRC"),
        pytest.param(GOOD[:-1], id="cut short"),
        pytest.param(GOOD + b"\0", id="a byte too many"),
        pytest.param(GOOD + damaged(GOOD), id="the second is damaged"),
        pytest.param(GOOD[:17], id="a head"),
        pytest.param(bytes(100), id="zeros"),
        pytest.param(message_set(1, Message(0, b"not gzip", attributes=1)), id="not compressed"),
        pytest.param(message_set(1, Message(0, None, attributes=1)), id="compressed nothing"),
        pytest.param(message_set(1, Message(0, gzip.compress(b""), attributes=1)), id="an empty wrapper"),
        pytest.param(
            message_set(1, Message(0, gzip.compress(bytes(1 << 26), 1), attributes=1)),
            id="a decompression bomb",
        ),
        pytest.param(
            message_set(
                1, Message(0, gzip.compress(message_set(1, Message(0, b"x", attributes=1))), attributes=1)
            ),
            id="a wrapper in a wrapper",
        ),
        pytest.param(message_set(1, Message(0, b"x", attributes=4)), id="zstd, which came later"),
        pytest.param(
            struct.pack(">qiI", 0, 2**31 - 1, 0) + bytes(20), id="a message of two thousand million bytes"
        ),
        pytest.param(struct.pack(">qiI", 0, -1, 0) + bytes(20), id="a negative size"),
    ],
)
@pytest.mark.parametrize("version", [0, 2])
def test_a_message_set_that_is_not_whole_is_refused_as_a_whole(
    peer: KafkaPeer, sent: bytes, version: int
) -> None:
    topic = "whole"
    peer.call(produce(topic, GOOD), 2)
    before = len(stored(peer, topic))
    code = only_partition(peer.call(produce(topic, sent), version)).error_code
    assert code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert len(stored(peer, topic)) == before


def test_the_limit_of_a_message_holds_for_sets_too(peer: KafkaPeer) -> None:
    create_topic(peer, "limited", max_message_bytes="1000")
    large = message_set(1, Message(0, bytes(2000), None, 1_000))
    assert only_partition(peer.call(produce("limited", large), 2)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_batches_and_message_sets_share_a_log(peer: KafkaPeer) -> None:
    create_topic(peer, "mixed")
    put(peer, "mixed", b"batch")
    for version, magic in ((0, 0), (2, 1)):
        sent = message_set(magic, Message(0, f"magic {magic}".encode()))
        assert only_partition(peer.call(produce("mixed", sent), version)).error_code == 0
    batches = only_partition(peer.call(fetch("mixed", 0), 12)).records
    assert records_in(batches) == [(0, b"batch"), (1, b"magic 0"), (2, b"magic 1")]


@pytest.mark.long
def test_a_message_set_of_very_many_messages_does_not_delay_others(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "many")
    # Half a million of the smallest messages, over a second of work.
    smallest = message_set(0, Message(0, None))
    correlation = peer.post(produce("many", smallest * 500_000), 2)
    answered_meanwhile = 0
    with KafkaPeer(broker) as other:
        while not select.select([peer.socket], [], [], 0)[0]:
            put(other, "few", b"x")
            answered_meanwhile += 1
    answered, done = peer.next_answer()
    assert (answered, only_partition(done).error_code) == (correlation, ErrorCode.MESSAGE_TOO_LARGE)
    # If it held others up: those before it was read, and the one that waited for it.
    assert answered_meanwhile > 5
