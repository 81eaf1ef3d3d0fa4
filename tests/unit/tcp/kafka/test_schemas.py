"""Every message in every version, held against two other implementations of the protocol.

Random messages are written by our codecs, read back, and read and written by
kio and by kafka-python, whose schemas come from Apache Kafka's own definitions.
"""

from __future__ import annotations

import importlib
import io
import random
from collections.abc import Iterator
from typing import Any

import kio.index
import pytest
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from stele.wire import schema
from stele.wire.kafka.api import Api
from stele.wire.kafka.api_versions import ApiVersionsResponse
from stele.wire.kafka.streams_groups import STREAMS_GROUP_HEARTBEAT_API, StreamsGroupHeartbeatRequest

from app.tcp.kafka.apis import SERVED
from tests.support.random_messages import leaves, random_message

MESSAGES_EACH = 6
APIS = [pytest.param(row.api, id=row.api.name) for row in SERVED.values()]


def cases(api: Api) -> Iterator[tuple[type[Any], EntityType, int, Any, bytes]]:
    """``(class, request or response, version, message, its bytes)``."""
    first, last = api.versions
    requests = [(api.request, EntityType.request)] if api.reads_request else []
    for cls, kind in (*requests, (api.response, EntityType.response)):
        for version in range(first, last + 1):
            for number in range(MESSAGES_EACH):
                rng = random.Random(f"{api.key} {kind.name} {version} {number}")
                message = random_message(cls, version, rng)
                yield cls, kind, version, message, written(api, cls, version, message)


def test_a_request_that_is_refused_whatever_is_in_it_is_not_read() -> None:
    api = STREAMS_GROUP_HEARTBEAT_API
    for data in (b"", b"\xff" * 100):
        assert api.read_request(0, data) == StreamsGroupHeartbeatRequest()


def written(api: Api, cls: type[Any], version: int, message: Any) -> bytes:
    out = bytearray()
    schema.writer(cls, version, api.is_flexible(version))(message, out)
    return bytes(out)


@pytest.mark.every(2)
@pytest.mark.parametrize("api", APIS)
def test_what_is_written_is_read_back(api: Api) -> None:
    for cls, _, version, message, data in cases(api):
        back, end = schema.read_message(cls, version, api.is_flexible(version), data)
        assert end == len(data)
        assert leaves(back, version) == leaves(message, version), (cls.__name__, version)


@pytest.mark.parametrize("api", APIS)
def test_records_that_are_gathered_are_the_same_bytes_uncopied(api: Api) -> None:
    for cls, _, version, message, data in cases(api):
        parts: list[bytes | bytearray] = []
        schema.gathering_writer(cls, version, api.is_flexible(version))(message, bytearray(b"head"), parts)
        assert b"".join(parts) == b"head" + data, (cls.__name__, version)


@pytest.mark.every(2)
@pytest.mark.parametrize("api", APIS)
def test_kio_reads_and_writes_the_same_bytes(api: Api) -> None:
    load = {
        EntityType.request: kio.index.load_request_schema,
        EntityType.response: kio.index.load_response_schema,
    }
    compared = 0
    for cls, kind, version, _, data in cases(api):
        try:
            entity: Any = load[kind](api.key, version)
        except kio.index.KioIndexError:
            # Versions that Kafka 4 dropped; kio begins later.
            continue
        value, size = entity_reader(entity)(data, 0)
        again = io.BytesIO()
        entity_writer(entity)(again, value)
        assert size == len(data)
        assert again.getvalue() == data, (cls.__name__, version)
        compared += 1
    assert compared


# Messages that kafka-python does not have; kio alone is their oracle.
NOT_IN_KAFKA_PYTHON = {
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "StreamsGroupHeartbeat",
    "StreamsGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
}  # fmt: skip


def kafka_python_class(name: str) -> Any:
    for part in ("admin", "consumer", "metadata", "producer", "sasl"):
        module = importlib.import_module(f"kafka.protocol.{part}")
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


@pytest.mark.long
@pytest.mark.parametrize("api", [one for one in APIS if one.id not in NOT_IN_KAFKA_PYTHON])
def test_kafka_python_reads_and_writes_the_same_bytes(api: Api) -> None:
    compared = 0
    for cls, kind, version, message, data in cases(api):
        if getattr(message, "error_code", 0) and cls is ApiVersionsResponse:
            # To a client an error says that the body is of v0, whatever was asked for (KIP-511).
            continue
        theirs = kafka_python_class(f"{api.name}{kind.name.title()}")
        if not theirs.min_version <= version <= theirs.max_version:
            continue
        value: Any = theirs.decode(data, version=version)
        # What was read without a header is written without one.
        value._header = None
        assert bytes(value.encode(version=version)) == data, (cls.__name__, version)
        compared += 1
    assert compared


@pytest.mark.every(3)
@pytest.mark.parametrize("api", APIS)
def test_a_message_cut_anywhere_is_malformed_and_nothing_else(api: Api) -> None:
    for cls, _, version, _, data in cases(api):
        for end in range(0, len(data), max(1, len(data) // 20)):
            with pytest.raises(schema.MalformedMessage):
                schema.read_message(cls, version, api.is_flexible(version), data[:end])
