"""A fetch of many partitions is cut into what it asks of each, or left to the decoder."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from app.tcp.kafka.fetching import wide_requests
from app.tcp.kafka.headers import read_client_id
from app.tcp.kafka.schemas.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from tests.support.kafka_peer import request_frame

VERSIONS = range(4, 19)
WIDE = wide_requests.PARTITIONS_MIN


def _request(
    version: int, partitions: int = WIDE, changes: Mapping[str, object] = MappingProxyType({})
) -> bytes:
    """Return a frame without its size."""
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="orders",
                topic_id=b"orders-have-this",
                partitions=[
                    FetchPartition(partition=number, fetch_offset=number, partition_max_bytes=1000 + number)
                    for number in range(partitions)
                ],
            )
        ],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return bytes(request_frame(request, version)[4:])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_entry_says_what_is_asked_of_its_partition(version: int) -> None:
    request = wide_requests.cut(memoryview(_request(version)))
    assert request is not None
    (block,) = request.blocks
    assert [wide_requests.ENTRIES[version].read(entry) for entry in block.entries] == [
        (number, -1, number, 1000 + number) for number in range(WIDE)
    ]
    assert (block.topic, block.topic_id) == (("orders", b"") if version < 13 else ("", b"orders-have-this"))
    assert (request.wait_ms_max, request.bytes_min, request.bytes_max) == (500, 1, 2**31 - 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_ends_too_early_or_too_late_is_left_to_the_generic_way(version: int) -> None:
    frame = _request(version, WIDE + 3)
    assert wide_requests.cut(memoryview(frame)) is not None
    for size in range(2, len(frame)):
        assert wide_requests.cut(memoryview(frame[:size])) is None
    assert wide_requests.cut(memoryview(frame + b"\0")) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_no_byte_of_a_request_can_do_harm(version: int) -> None:
    frame = bytearray(_request(version))
    for position in range(2, len(frame)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF):
            before, frame[position] = frame[position], byte
            wide_requests.cut(memoryview(frame))
            frame[position] = before


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (7, {"session_epoch": 0}),
        (12, {"session_id": 5, "session_epoch": 3}),
        (12, {"session_id": 5}),
        (12, {"cluster_id": "here"}),
    ],
)
def test_what_is_not_usual_is_left_to_the_generic_way(version: int, changes: dict[str, object]) -> None:
    assert wide_requests.cut(memoryview(_request(version, changes=changes))) is None


@pytest.mark.parametrize("version", [11, 12, 18])
def test_strings_that_the_decoder_refuses_are_left_to_it(version: int) -> None:
    frame = _request(version, changes={"rack_id": "rack"})
    assert wide_requests.cut(memoryview(frame)) is not None
    assert wide_requests.cut(memoryview(frame.replace(b"rack", b"\xff\xff\xff\xff"))) is None
    if version < 13:
        assert wide_requests.cut(memoryview(frame.replace(b"orders", b"\xffrders"))) is None
        topic = FetchTopic(
            topic="x" * 250,
            partitions=[
                FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in range(WIDE)
            ],
        )
        assert wide_requests.cut(memoryview(_request(version, changes={"topics": [topic]}))) is None


def test_few_partitions_and_too_many_are_left_to_the_generic_way() -> None:
    assert wide_requests.cut(memoryview(_request(12, WIDE - 1))) is None
    most = wide_requests.WIDE_PARTITIONS_MAX
    assert wide_requests.cut(memoryview(_request(12, most))) is not None
    assert wide_requests.cut(memoryview(_request(12, most + 1))) is None


def test_a_number_of_partitions_that_the_request_does_not_have_costs_nothing() -> None:
    frame = bytearray(_request(11))
    position = bytes(frame).index(b"orders") + len("orders")
    struct.pack_into(">i", frame, position, 2**31 - 1)
    assert wide_requests.cut(memoryview(frame)) is None


def test_a_topic_that_stands_side_by_side_with_itself_is_left_to_the_generic_way() -> None:
    """No client is known to send this."""
    frame = _request(12, WIDE)
    request = FETCH_API.read_request(
        12, memoryview(frame), read_client_id(memoryview(frame), flexible=True)[1]
    )
    (topic,) = request.topics
    halves = [
        replace(topic, partitions=topic.partitions[:9]),
        replace(topic, partitions=topic.partitions[9:]),
    ]
    frame = _request(12, WIDE, {"topics": halves})
    assert wide_requests.cut(memoryview(frame)) is None
    other = FetchTopic(topic="users", partitions=topic.partitions[:1])
    frame = _request(12, WIDE, {"topics": [halves[0], other, halves[1]]})
    assert wide_requests.cut(memoryview(frame)) is not None
