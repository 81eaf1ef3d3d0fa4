"""The Kafka protocol against a real broker, with nothing but sockets: what a connection may rely on.

Here stand the versions, the headers, topics in the metadata, produce, fetch,
offsets and the order of answers. ``test_kafka_admin``, ``test_kafka_groups`` and
``test_kafka_legacy`` have the rest.
"""

from __future__ import annotations

import os
import re
import signal
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele.broker_process import BrokerProcess, run_broker
from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.metadata import (
    METADATA_API,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from stele.wire.kafka.offsets import (
    LIST_OFFSETS_API,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from stele.wire.kafka.produce import PRODUCE_API, PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.transactions import INIT_PRODUCER_ID_API, InitProducerIdRequest

from app.tcp.kafka.apis import SERVED
from tests.support.batches import batch_of, batch_of_times
from tests.support.kafka_peer import (
    WITHOUT_RETENTION,
    KafkaPeer,
    array,
    blob,
    compact,
    create_topic,
    delete_topic,
    fetch,
    framed,
    only_partition,
    produce,
    put,
    read_response,
    records_in,
    request_frame,
    text,
)

NO_ID = bytes(16)
# The first version with batches, and the last one that names topics.
PRODUCE_BY_NAME = (3, 12)
FETCH_BY_NAME = (4, 12)
PRODUCE_LAST, FETCH_LAST = PRODUCE_API.versions[1], FETCH_API.versions[1]
# A long poll that nothing ends lasts longer than a peer waits for an answer, which fails the test.
LONG_MS = 3_600_000


ENVIRONMENT = WITHOUT_RETENTION


def metadata_of(*names: str, auto_create: bool = True) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=auto_create,
    )


def codes_by_name(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


def code_of(response: Any) -> int:
    return only_partition(response).error_code


# ── versions ──

SERVED_ROWS = sorted((row.api.key, *row.api.versions) for row in SERVED.values())


# Tagged fields 0 (supported, from 0 on), 1 (epoch 0) and 2 (finalized); before v4 without the first.
_LEVELS = {"group.version": 1, "share.version": 2, "transaction.version": 2}


def _features(*, minimum: int | None) -> bytes:
    """Return a tagged list of features; ``minimum`` None: the level itself."""
    rows = b"".join(
        compact(name) + struct.pack(">hhx", *((level, level) if minimum is None else (minimum, level)))
        for name, level in _LEVELS.items()
    )
    return bytes((len(rows) + 1, len(_LEVELS) + 1)) + rows


_FINALIZED = b"\x01\x08" + bytes(8) + b"\x02" + _features(minimum=None)
FEATURES = {3: b"\x02" + _FINALIZED, 4: b"\x03" + b"\x00" + _features(minimum=0) + _FINALIZED}


@pytest.mark.parametrize("version", range(3))
def test_api_versions_tells_what_the_dispatch_serves_no_more_and_no_less(
    peer: KafkaPeer, version: int
) -> None:
    keys = array(*(struct.pack(">hhh", *row) for row in SERVED_ROWS))
    throttled = b"" if version == 0 else bytes(4)
    assert (
        peer.ask(framed(18, version, b"", correlation=-1))
        == bytes.fromhex("ffffffff 0000") + keys + throttled
    )


@pytest.mark.parametrize("version", [3, 4])
def test_api_versions_in_flexible_versions_has_the_old_response_header(peer: KafkaPeer, version: int) -> None:
    body = compact("any-client.1") + compact("1.0-rc.1") + b"\0"
    keys = b"".join(struct.pack(">hhhx", *row) for row in SERVED_ROWS)
    assert peer.ask(framed(18, version, body, tags=b"\0")) == (
        # No tagged fields between correlation id and error code.
        bytes.fromhex("00000007 0000") + bytes([len(SERVED_ROWS) + 1]) + keys + bytes(4) + FEATURES[version]
    )


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_the_versions_there_are(
    peer: KafkaPeer, version: int
) -> None:
    # What stands behind the fixed part of the header is not looked at: nobody knows what it is.
    answer = peer.ask(framed(18, version, b"\xff\xfe from the future"))
    assert answer == bytes.fromhex("00000007 0023 00000001 0012 0000 0004")
    assert peer.call(metadata_of(), 4).brokers, "and the connection lives"


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("a b", "1"), ("a", "-1"), ("a", "1!")])
def test_a_client_that_names_itself_against_the_rules_is_refused(
    peer: KafkaPeer, name: str, version: str
) -> None:
    asked = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = peer.call(asked, 3)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("key", sorted(SERVED))
def test_every_api_is_refused_outside_the_versions_it_is_advertised_in(
    broker: BrokerProcess, key: int
) -> None:
    first, last = SERVED[key].api.versions
    for version in {first - 1, last + 1} - ({-1} if key == 18 else set()):
        if key == 18:
            continue
        with KafkaPeer(broker) as peer:
            peer.send(framed(key, version, bytes(100)))
            assert peer.rest() == b""


@pytest.mark.parametrize("key", [4, 5, 6, 7, 17, 24, 26, 36, 71, 83, 1000, -1])
def test_an_api_that_is_not_served_ends_the_connection(peer: KafkaPeer, key: int) -> None:
    peer.send(framed(key, 0, b""))
    assert peer.rest() == b""


# ── headers ──


@pytest.mark.parametrize("client_id", [None, "", "größe", "x" * 32767])
def test_a_client_may_have_any_name_or_none(peer: KafkaPeer, client_id: str | None) -> None:
    assert len(peer.ask(framed(18, 0, b"", client_id=client_id))) > 100
    body = compact("c") + compact("1") + b"\0"
    assert len(peer.ask(framed(18, 3, body, client_id=client_id, tags=b"\0"))) > 100


def test_unknown_tagged_fields_are_skipped_in_header_and_body(peer: KafkaPeer) -> None:
    unknown = bytes.fromhex("02 09 03 aabbcc 8780 01 00".replace(" ", ""))
    body = compact("c") + compact("1") + unknown
    assert len(peer.ask(framed(18, 3, body, tags=unknown))) > 100


@pytest.mark.parametrize("correlation", [0, 1, 2**31 - 1, -1, -(2**31)])
def test_a_correlation_id_comes_back_whatever_it_is(peer: KafkaPeer, correlation: int) -> None:
    answer = peer.ask(framed(18, 0, b"", correlation=correlation))
    assert struct.unpack_from(">i", answer) == (correlation,)


def test_trailing_bytes_of_a_request_are_ignored(peer: KafkaPeer) -> None:
    assert len(peer.ask(framed(18, 0, b"left over"))) > 100


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("16030100c8010000c4"), id="TLS"),
        pytest.param(struct.pack(">i", 0), id="a size of 0"),
        pytest.param(struct.pack(">i", -1), id="a negative size"),
        pytest.param(struct.pack(">i", 7) + bytes(7), id="less than a header"),
        pytest.param(struct.pack(">ihhih", 10, 18, 0, 7, 5), id="a client id longer than the request"),
        pytest.param(struct.pack(">ihhih", 10, 18, 0, 7, -2), id="a client id of length -2"),
        pytest.param(framed(3, 1, array(text("t"))[:-1]), id="a body that is cut short"),
        pytest.param(framed(3, 1, array(b"\x00\x02\xff\xfe")), id="a name that is not UTF-8"),
        pytest.param(framed(3, 1, struct.pack(">i", 2**31 - 1)), id="two thousand million topics"),
        pytest.param(framed(3, 9, b"\xff\xff\xff\xff\x0f\1\0", tags=b"\0"), id="as many in a varint"),
        pytest.param(framed(3, 9, b"\xff" * 10, tags=b"\0"), id="a varint without an end"),
        pytest.param(framed(3, 1, array(text("t" * 32767) * 129)), id="four mebibytes and more of a request without records"),
        pytest.param(framed(12, 4, b"\x81\x80\x02" + b"g" * 32768 + bytes(6), tags=b"\0"), id="a string of 32768 bytes"),
        pytest.param(framed(3, 9, b"\xa2\x8d\x06" + bytes(100_001 * 2), tags=b"\0"), id="100,001 elements"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_request_ends_the_connection_after_the_answers_before_it(
    peer: KafkaPeer, sent: bytes
) -> None:
    peer.send(framed(18, 0, b"", correlation=1), sent, framed(18, 0, b"", correlation=2))
    assert peer.frame()[:4] == bytes.fromhex("00000001")
    assert peer.rest() == b""


# ── the versions of old clients, by hand: what our codecs have in common cannot hide here ──


def test_metadata_v0_by_hand(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "by-hand", partitions=2)

    answer = peer.ask(framed(3, 0, array(text("by-hand"), text("no/name"))))

    node = struct.pack(">i", 1)
    assert answer == (
        struct.pack(">i", 7)
        + array(node + text(broker.host) + struct.pack(">i", broker.kafka_port))
        + array(
            struct.pack(">h", 0)
            + text("by-hand")
            + array(*(struct.pack(">hii", 0, number, 1) + array(node) + array(node) for number in range(2))),
            struct.pack(">h", 17) + text("no/name") + array(),
        )
    )


def test_list_offsets_v1_by_hand(peer: KafkaPeer) -> None:
    put(peer, "listed-by-hand", b"a", b"b")
    latest, earliest, at_a_time = -1, -2, 999

    answer = peer.ask(
        framed(
            2,
            1,
            struct.pack(">i", -1)
            + array(
                text("listed-by-hand")
                + array(*(struct.pack(">iq", 0, time) for time in (latest, earliest, at_a_time))),
                text("missing") + array(struct.pack(">iq", 0, latest)),
            ),
        )
    )

    assert answer == (
        struct.pack(">i", 7)
        + array(
            text("listed-by-hand")
            + array(
                struct.pack(">ihqq", 0, 0, -1, 2),
                struct.pack(">ihqq", 0, 0, -1, 0),
                struct.pack(">ihqq", 0, 0, 1_000, 0),
            ),
            text("missing") + array(struct.pack(">ihqq", 0, 3, -1, -1)),
        )
    )


def test_list_offsets_v0_by_hand(peer: KafkaPeer) -> None:
    """Where segments begin, newest first, and as many as are asked for."""
    create_topic(peer, "listed-of-old", segment_bytes="1048576")
    for _ in range(3):
        # The second and the third do not fit behind the one before them.
        put(peer, "listed-of-old", bytes(900_000), timestamp_ms=1_000)

    def ask(topic: str, at: int, count: int) -> tuple[int, list[int]]:
        asked = array(text(topic) + array(struct.pack(">iqi", 0, at, count)))
        answer = peer.ask(framed(2, 0, struct.pack(">i", -1) + asked))
        head = struct.pack(">ii", 7, 1) + text(topic) + struct.pack(">ii", 1, 0)
        assert answer.startswith(head)
        code, length = struct.unpack_from(">hi", answer, len(head))
        assert len(answer) == len(head) + 6 + 8 * length
        return code, list(struct.unpack_from(f">{length}q", answer, len(head) + 6))

    latest, earliest = -1, -2
    assert ask("listed-of-old", latest, 1) == (0, [3])
    assert ask("listed-of-old", latest, 10) == (0, [3, 2, 1, 0])
    assert ask("listed-of-old", latest, 2) == (0, [3, 2])
    assert ask("listed-of-old", earliest, 1) == ask("listed-of-old", earliest, 9) == (0, [0])
    assert ask("listed-of-old", 1 << 62, 9) == (0, [3, 2, 1, 0])
    assert ask("listed-of-old", 999, 9) == (0, [])
    assert ask("listed-of-old", latest, 0) == ask("listed-of-old", latest, -1) == (0, [])
    assert ask("missing", latest, 1) == (3, [])
    create_topic(peer, "nothing-of-old")
    assert ask("nothing-of-old", latest, 5) == ask("nothing-of-old", earliest, 5) == (0, [0])
    create_topic(peer, "memory-of-old", stele_storage="memory")
    put(peer, "memory-of-old", b"a", b"b")
    assert ask("memory-of-old", latest, 5) == (0, [2, 0])


def test_produce_v3_and_fetch_v4_by_hand(peer: KafkaPeer) -> None:
    # One record, key "k", value "v", as docs/formats/record-batch.md has it.
    tail = bytes.fromhex(
        "02 a7 5e 02 9d 00 00 00 00 00 00 00 00 01 9a a2 91 c0 00 00 00 01 9a a2 91 c0 00 ff ff ff ff ff"
        "ff ff ff ff ff ff ff ff ff 00 00 00 01 10 00 00 00 02 6b 02 76 00"
    )
    batch = bytes.fromhex("00 00 00 00 00 00 00 00 00 00 00 3a ff ff ff ff") + tail
    stored = bytes.fromhex("00 00 00 00 00 00 00 00 00 00 00 3a 00 00 00 00") + tail
    topic = text("batch-by-hand")

    produced = peer.ask(
        framed(0, 3, text(None) + struct.pack(">hi", -1, 1000) + array(topic + array(bytes(4) + blob(batch))))
    )
    fetched = peer.ask(
        framed(
            1, 4, struct.pack(">iiiib", -1, 0, 1, 1 << 20, 0) + array(topic + array(struct.pack(">iqi", 0, 0, 1 << 20)))
        )
    )  # fmt: skip

    assert produced == bytes.fromhex("00000007") + array(
        topic + array(struct.pack(">ihqq", 0, 0, 0, -1))
    ) + bytes(4)
    assert fetched == bytes.fromhex("00000007 00000000") + array(
        topic + array(struct.pack(">ihqqi", 0, 0, 1, 1, -1) + blob(stored))
    )


# ── metadata ──


@pytest.mark.parametrize("version", [1, 4, 9, METADATA_API.versions[1]])
def test_metadata_names_this_broker_and_what_it_leads(
    broker: BrokerProcess, peer: KafkaPeer, version: int
) -> None:
    topic = f"led-{version}"
    topic_id = create_topic(peer, topic, partitions=3)

    answer = peer.call(metadata_of(topic), version)

    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [
        (answer.controller_id, broker.host, broker.kafka_port)
    ]
    (described,) = answer.topics
    assert (described.name, described.error_code, described.is_internal) == (topic, 0, False)
    assert described.topic_id == (topic_id if version >= 10 else NO_ID)
    assert [one.partition_index for one in described.partitions] == [0, 1, 2]
    for one in described.partitions:
        assert (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes) == (0, 1, [1], [1])


def test_metadata_of_an_unknown_topic_creates_it_and_so_does_kafkajs_retry(peer: KafkaPeer) -> None:
    # KafkaJS asks in v6, sees the topic or an error that it retries, and asks again.
    first, second = (peer.call(metadata_of("made-by-asking"), 6) for _ in range(2))
    assert codes_by_name(first) == codes_by_name(second) == {"made-by-asking": ErrorCode.NONE}
    assert first.topics == second.topics
    assert put(peer, "made-by-asking", b"x") == 0


@pytest.mark.parametrize("version", [4, 9, 13])
def test_metadata_that_must_not_create_does_not(peer: KafkaPeer, version: int) -> None:
    for _ in range(2):
        answer = peer.call(metadata_of("never-made", auto_create=False), version)
        assert codes_by_name(answer) == {"never-made": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_before_version_4_asking_was_creating(peer: KafkaPeer) -> None:
    assert codes_by_name(peer.call(metadata_of("made-of-old", auto_create=False), 3)) == {"made-of-old": 0}


def test_all_topics_are_asked_for_with_an_empty_list_in_v0_and_with_null_since(peer: KafkaPeer) -> None:
    for name in ("all-b", "all-a"):
        create_topic(peer, name)
    of_old = peer.call(metadata_of(), 0)
    of_now = peer.call(MetadataRequest(topics=None), 1)
    for answer in (of_old, of_now):
        names = [topic.name for topic in answer.topics]
        assert {"all-a", "all-b"} <= set(names)
        assert names == sorted(names)


@pytest.mark.parametrize("version", [1, 4, 9, 13])
def test_an_empty_list_asks_for_no_topic_since_v1(peer: KafkaPeer, version: int) -> None:
    create_topic(peer, f"not-asked-for-{version}")
    assert peer.call(metadata_of(), version).topics == []


def test_a_topic_is_found_by_its_id_since_v12(peer: KafkaPeer) -> None:
    topic_id = create_topic(peer, "by-id")
    asked = [
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(topic_id=b"0123456789abcdef", name=None),
    ]

    found, missing = peer.call(MetadataRequest(topics=asked), 12).topics

    assert (found.name, found.topic_id, found.error_code) == ("by-id", topic_id, 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (
        None,
        b"0123456789abcdef",
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


@pytest.mark.parametrize("version", [10, 11])
def test_a_topic_asked_for_by_id_in_a_version_that_only_tells_ids_is_refused(
    peer: KafkaPeer, version: int
) -> None:
    topic_id = create_topic(peer, f"by-id-{version}")
    asked = [MetadataRequestTopic(topic_id=topic_id, name=None)]
    (refused,) = peer.call(MetadataRequest(topics=asked), version).topics
    assert (refused.name, refused.error_code) == ("", ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "x" * 5000])
@pytest.mark.parametrize("version", [0, 4, 13])
def test_an_invalid_topic_name_is_an_error(peer: KafkaPeer, name: str, version: int) -> None:
    answer = peer.call(metadata_of(name), version)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_without_auto_creation_nothing_is_made_by_asking_or_producing() -> None:
    with (
        run_broker(environment={"STELE_AUTO_CREATE_TOPICS_ENABLE": "false"}) as broker,
        KafkaPeer(broker) as peer,
    ):
        for version in (0, 4, 13):
            answer = peer.call(metadata_of("nope"), version)
            assert codes_by_name(answer) == {"nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        refused = peer.call(produce("nope", batch_of([b"x"])), 9)
        assert code_of(refused) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        listed = peer.call(MetadataRequest(topics=None), 4).topics
        assert [topic.name for topic in listed if not topic.is_internal] == []


# ── produce ──


@pytest.mark.parametrize("version", range(PRODUCE_BY_NAME[0], PRODUCE_LAST + 1))
def test_a_batch_is_produced_and_fetched_in_every_version(peer: KafkaPeer, version: int) -> None:
    name = f"every-version-{version}"
    topic_id = create_topic(peer, name)
    topic = topic_id if version > PRODUCE_BY_NAME[1] else name

    for acks in (1, -1):
        done = only_partition(peer.call(produce(topic, batch_of([b"x"]), acks=acks), version))
        assert (done.error_code, done.base_offset) == (0, 0 if acks == 1 else 1)
        assert done.log_start_offset == (0 if version >= 5 else -1)

    assert records_in(only_partition(peer.call(fetch(name, 0), 12)).records) == [(0, b"x"), (1, b"x")]


@pytest.mark.parametrize("version", range(FETCH_BY_NAME[0], FETCH_LAST + 1))
def test_what_was_produced_is_fetched_in_every_version(peer: KafkaPeer, version: int) -> None:
    name = f"fetched-{version}"
    topic_id = create_topic(peer, name)
    put(peer, name, b"a", b"b")
    topic = topic_id if version > FETCH_BY_NAME[1] else name

    response = peer.call(fetch(topic, 0), version)

    found = only_partition(response)
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 2, 2)
    assert (response.error_code, response.session_id) == (0, 0)
    assert records_in(found.records) == [(0, b"a"), (1, b"b")]


def test_acks_0_is_not_answered_and_the_next_response_is_that_of_the_next_request(peer: KafkaPeer) -> None:
    create_topic(peer, "unanswered")
    peer.send(*(request_frame(produce("unanswered", batch_of([b"x"]), acks=0), 9) for _ in range(10)))
    assert put(peer, "unanswered", b"y") == 10


def test_acks_0_creates_its_topic_and_is_not_answered_either(peer: KafkaPeer) -> None:
    peer.send(request_frame(produce("unanswered-made", batch_of([b"x"]), acks=0), 9))
    assert put(peer, "unanswered-made", b"y") == 1


def test_a_failed_produce_without_acks_ends_the_connection_after_the_answers_before_it(
    peer: KafkaPeer,
) -> None:
    create_topic(peer, "failing")
    peer.send(
        framed(18, 0, b"", correlation=1),
        request_frame(produce("failing", b"not a batch, and long enough for one", acks=0), 9),
        framed(18, 0, b"", correlation=2),
    )
    assert peer.frame()[:4] == struct.pack(">i", 1)
    assert peer.rest() == b""


def test_a_produce_answers_each_partition_and_an_invalid_one_does_not_affect_others(
    peer: KafkaPeer,
) -> None:
    create_topic(peer, "many-a", partitions=2)
    corrupt = batch_of([b"x"])
    corrupt[-1] ^= 1
    asked = [
        ("many-a", 0, batch_of([b"a", b"b"]), 0),
        ("many-a", 1, corrupt, ErrorCode.CORRUPT_MESSAGE),
        ("many-a", 2, batch_of([b"c"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("many-a", -1, batch_of([b"c"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("many-a", 1, None, ErrorCode.INVALID_RECORD),
        ("many-a", 1, b"", ErrorCode.INVALID_RECORD),
        ("many-b", 0, batch_of([b"d"]), 0),
        ("many/c", 0, batch_of([b"e"]), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 0, batch_of([b"e"]), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=records)],
            )
            for topic, partition, records, _ in asked
        ],
    )

    response = peer.call(request, 8)

    answered = [(topic.name, part) for topic in response.responses for part in topic.partition_responses]
    assert [(name, part.index, part.error_code) for name, part in answered] == [
        (topic, partition, code) for topic, partition, _, code in asked
    ]
    assert [part.base_offset for _, part in answered] == [0, -1, -1, -1, -1, -1, 0, -1, -1]
    assert all((part.error_message is None) == (part.error_code == 0) for _, part in answered)
    assert records_in(only_partition(peer.call(fetch("many-a", 0), 11)).records) == [(0, b"a"), (1, b"b")]
    assert records_in(only_partition(peer.call(fetch("many-b", 0), 11)).records) == [(0, b"d")]


def test_several_batches_for_one_partition_are_stored_together(peer: KafkaPeer) -> None:
    create_topic(peer, "two-batches")
    done = only_partition(
        peer.call(produce("two-batches", batch_of([b"a", b"b"]) + batch_of([b"c"]), acks=-1), 9)
    )
    assert (done.error_code, done.base_offset) == (0, 0)
    records = records_in(only_partition(peer.call(fetch("two-batches", 0), 12)).records)
    assert records == [(0, b"a"), (1, b"b"), (2, b"c")]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_compressed_batch_is_stored_as_it_came(peer: KafkaPeer, codec: Compression) -> None:
    topic = f"compressed-{codec.name.lower()}"
    create_topic(peer, topic)
    builder = rb.BatchBuilder(compression=codec)
    for number in range(100):
        builder.append(timestamp_ms=1_000, value=f"line {number}".encode())
    batch = bytes(builder.build())

    assert code_of(peer.call(produce(topic, batch), 9)) == 0

    stored = bytes(only_partition(peer.call(fetch(topic, 0), 12)).records)
    # All but base offset and leader epoch, which are the broker's.
    assert (stored[8:12], stored[16:]) == (batch[8:12], batch[16:])
    assert len(records_in(stored)) == 100


def test_max_message_bytes_is_held_batch_by_batch(peer: KafkaPeer) -> None:
    create_topic(peer, "small", max_message_bytes="1000")
    fits, is_too_large = batch_of([bytes(900)]), batch_of([bytes(1000)])
    assert code_of(peer.call(produce("small", is_too_large), 9)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(peer.call(produce("small", fits + is_too_large), 9)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(peer.call(produce("small", fits + fits), 9)) == 0
    assert put(peer, "small", b"next") == 2


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": -2}, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_a_produce_with_unsupported_options_is_refused(
    peer: KafkaPeer, changed: dict[str, Any], code: ErrorCode
) -> None:
    create_topic_if_missing(peer, "refusing")
    assert code_of(peer.call(produce("refusing", batch_of([b"x"]), **changed), 9)) == code


def create_topic_if_missing(peer: KafkaPeer, topic: str) -> None:
    assert codes_by_name(peer.call(metadata_of(topic), 4)) == {topic: 0}


@pytest.mark.parametrize("topic_id", [NO_ID, b"0123456789abcdef"])
def test_a_produce_and_a_fetch_by_an_unknown_topic_id_are_errors(peer: KafkaPeer, topic_id: bytes) -> None:
    assert code_of(peer.call(produce(topic_id, batch_of([b"x"])), PRODUCE_LAST)) == ErrorCode.UNKNOWN_TOPIC_ID
    response = peer.call(fetch(topic_id, 0), FETCH_LAST)
    assert code_of(response) == ErrorCode.UNKNOWN_TOPIC_ID
    assert response.responses[0].topic_id == topic_id


def test_a_topic_created_again_has_another_id_and_the_old_id_is_unknown(peer: KafkaPeer) -> None:
    old = create_topic(peer, "anew")
    delete_topic(peer, "anew")
    new = create_topic(peer, "anew")
    assert new != old
    assert code_of(peer.call(produce(old, batch_of([b"x"])), PRODUCE_LAST)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code_of(peer.call(produce(new, batch_of([b"x"])), PRODUCE_LAST)) == 0


# ── idempotence ──


def test_a_batch_sent_again_is_answered_with_its_first_offset_and_stored_once(peer: KafkaPeer) -> None:
    create_topic(peer, "once")
    identity = peer.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
    assert (identity.error_code, identity.producer_epoch) == (0, 0)

    def send(sequence: int, *values: bytes, epoch: int = 0, acks: int = -1) -> tuple[int, int]:
        batch = batch_of(
            values, producer_id=identity.producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        done = only_partition(peer.call(produce("once", batch, acks=acks), 9))
        return done.error_code, done.base_offset

    assert send(0, b"a", b"b") == (0, 0)
    assert send(2, b"c") == (0, 2)
    assert send(0, b"a", b"b") == (0, 0), "the duplicate"
    assert send(2, b"c", acks=1) == (0, 2), "and that of the next, however it is acked"
    assert send(9, b"z") == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), "a gap"
    assert send(3, b"d") == (0, 3)
    assert send(0, b"e", epoch=1) == (0, 4), "a new epoch begins at 0"
    assert send(4, b"f", epoch=0) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1), "the old one is fenced"
    records = records_in(only_partition(peer.call(fetch("once", 0), 12)).records)
    assert records == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))


def test_five_batches_in_flight_sent_again_after_a_lost_connection_are_stored_once(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "in-flight")
    batches = [batch_of([str(n).encode()], producer_id=4242, base_sequence=n) for n in range(5)]
    requests = [(produce("in-flight", batch, acks=-1), 9) for batch in batches]
    with KafkaPeer(broker) as lost:
        lost.post_all(requests)
        lost.next_answer()
        lost.reset()

    peer.post_all(requests)

    assert [only_partition(peer.next_answer()[1]).base_offset for _ in batches] == list(range(5))
    assert len(records_in(only_partition(peer.call(fetch("in-flight", 0), 12)).records)) == 5


def test_a_duplicate_is_known_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    batches = [batch_of([b"x"], producer_id=77, base_sequence=n) for n in range(3)]
    with run_broker(tmp_path, environment=WITHOUT_RETENTION) as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, "durable")
            for batch in batches:
                assert code_of(peer.call(produce("durable", batch, acks=-1), 9)) == 0
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            for offset, batch in enumerate(batches):
                done = only_partition(peer.call(produce("durable", batch, acks=-1), 9))
                assert (done.error_code, done.base_offset) == (0, offset)


@pytest.mark.parametrize("version", range(INIT_PRODUCER_ID_API.versions[1] + 1))
def test_a_producer_id_is_given_once(peer: KafkaPeer, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    given = {peer.call(request, version).producer_id for _ in range(20)}
    assert len(given) == 20
    assert min(given) >= 0


# ── fetch ──


def test_a_long_poll_ends_with_an_append_through_another_listener(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "bell")
    peer.post(fetch("bell", 0, max_wait_ms=LONG_MS), 12)
    httpx.post(
        f"{broker.http_url}/v1/topics/bell/records", json={"records": [{"value": "ding"}]}
    ).raise_for_status()
    _, answer = peer.next_answer()
    assert records_in(only_partition(answer).records) == [(0, b"ding")]


def test_a_long_poll_ends_with_a_produce_pipelined_after_it(peer: KafkaPeer) -> None:
    create_topic(peer, "self-rung")
    peer.post_all(
        [(fetch("self-rung", 0, max_wait_ms=LONG_MS), 12), (produce("self-rung", batch_of([b"x"])), 9)]
    )
    _, fetched = peer.next_answer()
    _, produced = peer.next_answer()
    assert records_in(only_partition(fetched).records) == [(0, b"x")]
    assert code_of(produced) == 0


def test_a_long_poll_over_many_partitions_ends_with_an_append_to_any_of_them(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "many-bells", partitions=3)
    peer.post(fetch_of("many-bells", [(0, 0), (1, 0), (2, 0)], max_wait_ms=LONG_MS), 12)
    with KafkaPeer(broker) as other:
        put(other, "many-bells", b"x", partition=1)
    _, answer = peer.next_answer()
    (topic,) = answer.responses
    assert [(one.partition_index, len(records_in(one.records))) for one in topic.partitions] == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]


def fetch_of(
    topic: str, partitions: list[tuple[int, int]], *, max_wait_ms: int = 0, max_bytes: int = 1 << 20
) -> FetchRequest:
    request = fetch(topic, 0, max_wait_ms=max_wait_ms, max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=request.max_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for partition, offset in partitions
                ],
            )
        ],
    )


def test_a_fetch_waits_for_min_bytes_and_no_longer_than_max_wait(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    create_topic(peer, "enough")
    one_batch = len(batch_of([bytes(100)]))
    peer.post(fetch("enough", 0, max_wait_ms=LONG_MS, min_bytes=one_batch * 3), 12)
    with KafkaPeer(broker) as other:
        for _ in range(3):
            put(other, "enough", bytes(100))
    _, answer = peer.next_answer()
    assert len(records_in(only_partition(answer).records)) == 3
    short = peer.call(fetch("enough", 0, max_wait_ms=200, min_bytes=one_batch * 4), 12)
    assert len(records_in(only_partition(short).records)) == 3, "the records there are, once max_wait is over"


def test_max_bytes_bounds_an_answer_but_one_batch_always_comes(peer: KafkaPeer) -> None:
    create_topic(peer, "bounded", partitions=2)
    for partition in range(2):
        for _ in range(30):
            put(peer, "bounded", bytes(1000), partition=partition)
    for bounds in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0, "partition_max_bytes": 0}):
        found = only_partition(peer.call(fetch("bounded", 0, **bounds), 12))
        assert [offset for offset, _ in records_in(found.records)] == [0]
    some = only_partition(peer.call(fetch("bounded", 0, partition_max_bytes=15_000), 12)).records
    # Whole batches, found by an index that has an entry every 4 KiB.
    assert 15_000 - 4096 - 1100 <= len(some) <= 15_000
    assert [offset for offset, _ in records_in(some)] == list(range(len(some) // 1000))
    (topic,) = peer.call(fetch_of("bounded", [(0, 0), (1, 0)], max_bytes=1), 12).responses
    assert [len(records_in(one.records)) for one in topic.partitions] == [1, 0]


def test_a_fetch_from_inside_a_batch_gives_the_whole_batch(peer: KafkaPeer) -> None:
    create_topic(peer, "inside")
    put(peer, "inside", b"a", b"b", b"c")
    put(peer, "inside", b"d")
    found = only_partition(peer.call(fetch("inside", 1), 12))
    assert records_in(found.records) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
    assert records_in(only_partition(peer.call(fetch("inside", 3), 12)).records) == [(3, b"d")]
    at_the_end = only_partition(peer.call(fetch("inside", 4), 12))
    assert (at_the_end.error_code, at_the_end.high_watermark, at_the_end.records) == (0, 4, b"")


@pytest.mark.parametrize("offset", [-1, 3, 2**62])
def test_a_fetch_outside_the_log_fails_at_once(peer: KafkaPeer, offset: int) -> None:
    topic = f"outside-{offset}"
    create_topic(peer, topic)
    put(peer, topic, b"a", b"b")
    response = peer.call(fetch(topic, offset, max_wait_ms=LONG_MS), 12)
    assert code_of(response) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_partitions_of_one_fetch_have_an_answer_each_and_one_that_fails_ends_the_wait(
    peer: KafkaPeer,
) -> None:
    create_topic(peer, "some", partitions=2)
    put(peer, "some", b"x", partition=1)
    (topic,) = peer.call(
        fetch_of("some", [(0, 5), (1, 0), (2, 0), (-1, 0)], max_wait_ms=LONG_MS), 12
    ).responses
    assert [(one.partition_index, one.error_code, len(one.records) > 0) for one in topic.partitions] == [
        (0, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (1, 0, True),
        (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    ]


def test_a_fetch_never_creates_a_topic(peer: KafkaPeer) -> None:
    for _ in range(2):
        assert code_of(peer.call(fetch("never-by-fetch", 0), 12)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_by_id_answers_with_the_id(peer: KafkaPeer) -> None:
    topic_id = create_topic(peer, "fetched-by-id")
    put(peer, "fetched-by-id", b"x")
    response = peer.call(fetch(topic_id, 0), 13)
    assert [(one.topic_id, one.topic) for one in response.responses] == [(topic_id, "")]
    assert records_in(only_partition(response).records) == [(0, b"x")]


def test_a_fetch_for_nothing_is_answered_with_nothing(peer: KafkaPeer) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
    assert peer.call(request, 12).responses == []


# ── leader epochs: they go up with every start that follows a crash ──


def test_a_client_with_an_older_or_a_newer_leader_epoch_is_sent_for_metadata(tmp_path: Path) -> None:
    def fetch_code(epoch: int) -> int:
        return code_of(peer.call(fetch("epochs", 0, current_leader_epoch=epoch, max_wait_ms=LONG_MS), 12))

    def list_code(epoch: int) -> int:
        return offset_at(peer, "epochs", -1, current_leader_epoch=epoch).error_code

    def end_of(epoch: int, current: int = -1) -> tuple[int, int, int]:
        return end_of_epoch(peer, "epochs", epoch, current)

    with run_broker(tmp_path, environment=WITHOUT_RETENTION) as broker:
        with KafkaPeer(broker) as peer:
            put_and_sync(peer, "epochs", b"a", b"b")
            (topic,) = peer.call(metadata_of("epochs"), 9).topics
            before = topic.partitions[0].leader_epoch
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            (topic,) = peer.call(metadata_of("epochs"), 9).topics
            now = topic.partitions[0].leader_epoch
            assert now > before
            put_and_sync(peer, "epochs", b"c")
            for code in (fetch_code, list_code):
                assert code(-1) == code(now) == ErrorCode.NONE
                assert code(before) == ErrorCode.FENCED_LEADER_EPOCH
                assert code(now + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert end_of(before) == (0, before, 2)
            assert end_of(now) == end_of(now, now) == (0, now, 3)
            assert end_of(now, before) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
            assert end_of(now, now + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
            assert end_of(now + 1) == (0, -1, -1), "an epoch that is not yet has no end"
            assert end_of(-1) == (0, -1, -1)


def test_an_epoch_of_which_a_log_has_nothing_ends_where_the_next_one_begins(tmp_path: Path) -> None:
    """So a client that has read of it, before the log lost that, continues there, whatever its reset policy."""
    with run_broker(tmp_path, environment=WITHOUT_RETENTION) as broker:
        with KafkaPeer(broker) as peer:
            (topic,) = peer.call(metadata_of("epochs"), 9).topics
            before = topic.partitions[0].leader_epoch
        broker.kill()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert end_of_epoch(peer, "epochs", before) == (0, before, 0)
            put_and_sync(peer, "epochs", b"a", b"b")
            assert end_of_epoch(peer, "epochs", before) == (0, before, 0)


def end_of_epoch(peer: KafkaPeer, topic: str, epoch: int, current: int = -1) -> tuple[int, int, int]:
    """Return error code, epoch and end offset."""
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    asked = OffsetForLeaderTopic(topic=topic, partitions=[partition])
    response = peer.call(OffsetForLeaderEpochRequest(topics=[asked]), 4)
    (found,) = response.topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


def put_and_sync(peer: KafkaPeer, topic: str, *values: bytes) -> None:
    assert code_of(peer.call(produce(topic, batch_of(values), acks=-1), 9)) == 0


# ── offsets by time ──


def offset_at(
    peer: KafkaPeer,
    topic: str,
    at: int,
    version: int = 7,
    *,
    partition: int = 0,
    current_leader_epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=current_leader_epoch, timestamp=at
    )
    response = peer.call(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]),
        version,
    )
    (found,) = response.topics[0].partitions
    return found


LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.mark.parametrize("version", range(1, LIST_OFFSETS_API.versions[1] + 1))
def test_offsets_are_found_by_end_start_and_time_in_every_version(peer: KafkaPeer, version: int) -> None:
    topic = f"times-{version}"
    create_topic(peer, topic)
    for times in ([1_000, 3_000, 2_000], [5_000]):
        assert code_of(peer.call(produce(topic, batch_of_times(times)), 9)) == 0

    def found(at: int) -> tuple[int, int, int]:
        one = offset_at(peer, topic, at, version)
        return one.error_code, one.offset, one.timestamp

    assert found(LATEST) == (0, 4, -1)
    assert found(EARLIEST) == (0, 0, -1)
    assert found(0) == (0, 0, 1_000)
    assert found(1_001) == (0, 1, 3_000)
    assert found(3_001) == found(5_000) == (0, 3, 5_000)
    assert found(5_001) == (0, -1, -1), "nothing is that new"


def test_the_record_with_the_newest_time_need_not_be_the_last(peer: KafkaPeer) -> None:
    create_topic(peer, "newest")
    for times in ([1_000, 9_000, 2_000], [5_000]):
        assert code_of(peer.call(produce("newest", batch_of_times(times)), 9)) == 0
    found = offset_at(peer, "newest", MAX_TIMESTAMP)
    assert (found.error_code, found.offset, found.timestamp) == (0, 1, 9_000)


@pytest.mark.parametrize(("at", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 99), (-(2**63), 99)])
def test_special_times_are_refused_in_versions_that_do_not_know_them(
    peer: KafkaPeer, at: int, since: int
) -> None:
    topic = f"special-{since}{at}"
    put(peer, topic, b"x")
    for version in range(1, LIST_OFFSETS_API.versions[1] + 1):
        found = offset_at(peer, topic, at, version)
        if version < since:
            assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        else:
            assert (found.error_code, found.offset) == (0, 0 if at in (-3, -4) else -1)


@pytest.mark.parametrize(("at", "offset"), [(LATEST, 0), (EARLIEST, 0), (MAX_TIMESTAMP, -1), (1_000, -1)])
def test_an_empty_partition_has_a_start_and_an_end_and_no_times(
    peer: KafkaPeer, at: int, offset: int
) -> None:
    create_topic(peer, f"empty{at}")
    found = offset_at(peer, f"empty{at}", at)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)


def test_offsets_of_what_is_not_there_are_errors_and_make_nothing(peer: KafkaPeer) -> None:
    create_topic(peer, "one-partition")
    for topic, partition in (("no-topic", 0), ("one-partition", 1), ("one-partition", -1)):
        found = offset_at(peer, topic, LATEST, partition=partition)
        assert (found.error_code, found.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


# ── the order of answers ──


def test_a_hundred_requests_of_many_kinds_in_one_piece_are_answered_in_their_order(peer: KafkaPeer) -> None:
    topic = "pipelined"
    # A request begins before the sync of an earlier one has ended.
    create_topic(peer, topic, stele_visibility="appended")
    requests: list[tuple[object, int]] = []
    for number in range(20):
        requests += [
            (produce(topic, batch_of([str(number).encode()]), acks=1 if number % 2 else -1), 9),
            (fetch(topic, number), 12),
            (metadata_of(topic, f"made-on-the-way-{number}"), 9),
            (ApiVersionsRequest(), 0),
            (
                ListOffsetsRequest(
                    replica_id=-1,
                    topics=[
                        ListOffsetsTopic(
                            name=topic,
                            partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)],
                        )
                    ],
                ),
                7,
            ),
        ]
    correlations = peer.post_all(requests)
    answers = [peer.next_answer() for _ in requests]
    assert [correlation for correlation, _ in answers] == correlations
    for number in range(20):
        produced, fetched, _, _, listed = (answer for _, answer in answers[number * 5 : number * 5 + 5])
        assert only_partition(produced).base_offset == number
        assert records_in(only_partition(fetched).records) == [(number, str(number).encode())]
        assert listed.topics[0].partitions[0].offset == number + 1


@pytest.mark.parametrize("piece_bytes", [1, 3, 7, 64, 997])
def test_requests_are_cut_out_of_the_stream_in_whatever_pieces_they_come(
    peer: KafkaPeer, piece_bytes: int
) -> None:
    topic = f"in-pieces-{piece_bytes}"
    frames = [
        request_frame(produce(topic, batch_of([b"x" * 100])), 9, correlation=number) for number in range(10)
    ]
    stream = b"".join(frames)
    for start in range(0, len(stream), piece_bytes):
        peer.send(stream[start : start + piece_bytes])
    for number in range(10):
        correlation, answer = read_response(peer.frame(), PRODUCE_API, 9)
        assert (correlation, only_partition(answer).base_offset) == (number, number)


def test_requests_pipelined_after_a_long_poll_take_effect_and_are_answered_after_it(
    broker: BrokerProcess, peer: KafkaPeer
) -> None:
    for name in ("quiet", "busy"):
        create_topic(peer, name)
    waiting, behind = peer.post_all(
        [(fetch("quiet", 0, max_wait_ms=LONG_MS), 12), (produce("busy", batch_of([b"x"])), 9)]
    )
    with KafkaPeer(broker) as other:
        seen = only_partition(other.call(fetch("busy", 0, max_wait_ms=LONG_MS), 12))
        assert records_in(seen.records) == [(0, b"x")], "it took effect while the long poll waits"
        put(other, "quiet", b"y")
    assert [peer.next_answer()[0] for _ in range(2)] == [waiting, behind]


def test_a_half_open_peer_gets_every_answer_and_then_the_end(peer: KafkaPeer) -> None:
    create_topic(peer, "half-open")
    correlations = peer.post_all([(produce("half-open", batch_of([b"x"]), acks=-1), 9)] * 500)
    peer.end()
    # More than are begun in one turn of the loop.
    assert [peer.next_answer()[0] for _ in range(500)] == correlations
    assert peer.rest() == b""


# ── the end ──


def test_sigterm_answers_what_was_received_and_stores_nothing_that_it_did_not_answer(tmp_path: Path) -> None:
    count = 3_000
    frames = [
        request_frame(produce("stopping", batch_of([b"x" * 100]), acks=-1), 9, correlation=number)
        for number in range(count)
    ]
    with run_broker(tmp_path, environment=WITHOUT_RETENTION) as broker:
        with KafkaPeer(broker) as peer, KafkaPeer(broker) as waiting:
            create_topic(peer, "stopping")
            create_topic(peer, "silent")
            waiting.post(fetch("silent", 0, max_wait_ms=60_000), 12)
            peer.send(*frames)
            first = peer.frame()
            os.kill(broker.pid, signal.SIGTERM)
            _, polled = waiting.next_answer()
            assert only_partition(polled).records == b"", "a long poll ends with the broker"
            rest = peer.rest()
        assert broker.stop() == 0

        offsets = [only_partition(read_response(first, PRODUCE_API, 9)[1]).base_offset]
        position = 0
        while position < len(rest):
            (size,) = struct.unpack_from(">i", rest, position)
            _, answer = read_response(rest[position + 4 : position + 4 + size], PRODUCE_API, 9)
            one = only_partition(answer)
            if one.error_code == 0:
                offsets.append(one.base_offset)
            else:
                assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            position += 4 + size
        assert offsets == list(range(len(offsets)))

        broker.start()
        with KafkaPeer(broker) as peer:
            assert offset_at(peer, "stopping", LATEST).offset == len(offsets)


# ── limits ──


def test_a_connection_too_many_is_closed_and_the_others_are_served() -> None:
    with run_broker(environment={"STELE_CONNECTIONS_MAX": "2"}) as broker:
        with KafkaPeer(broker) as first, KafkaPeer(broker) as second:
            for peer in (first, second):
                assert len(peer.ask(framed(18, 0, b""))) > 100
            with KafkaPeer(broker) as third:
                assert third.rest() == b""
            assert len(first.ask(framed(18, 0, b""))) > 100
        assert "too many connections" in broker.stderr


def test_an_unfinished_request_and_a_silent_client_are_closed_at_their_timeouts() -> None:
    limits = {"STELE_FRAME_TIMEOUT_MS": "300", "STELE_IDLE_TIMEOUT_MS": "1000"}
    with run_broker(environment=limits) as broker, KafkaPeer(broker) as endless, KafkaPeer(broker) as silent:
        endless.send(framed(18, 0, b"")[:-1])
        assert endless.rest() == b""
        assert len(silent.ask(framed(18, 0, b""))) > 100
        assert silent.rest() == b""


# ── debugging ──


def dumps_in(log: str) -> list[tuple[str, bytes]]:
    """What was traced: the line up to the version, and the bytes below it."""
    found: list[tuple[str, bytes]] = []
    for line in log.splitlines():
        if " stele.trace: " in line:
            _, _, told = line.partition(") ")
            found.append((told.partition(" correlation=")[0], b""))
        elif found and (dump := re.match(r"[0-9a-f]{6}  ((?:[0-9a-f]{2} ?)+)", line)):
            found[-1] = found[-1][0], found[-1][1] + bytes.fromhex(dump[1])
    return found


def test_a_traced_connection_logs_each_request_with_its_bytes() -> None:
    asked = [framed(3, 1, array(text("traced")), client_id="who"), framed(18, 0, b"")]
    with run_broker(arguments=["--trace-connections", "--hex"]) as broker, KafkaPeer(broker) as peer:
        answers = [peer.ask(frame) for frame in asked]
        assert "client='who'" in broker.stderr
        assert dumps_in(broker.stderr) == [
            ("> Metadata v1", asked[0][4:]),
            ("< Metadata v1", answers[0]),
            ("> ApiVersions v0", asked[1][4:]),
            ("< ApiVersions v0", answers[1]),
        ]


def test_a_trace_without_hex_is_a_line_each_and_none_by_default(broker: BrokerProcess) -> None:
    with run_broker(arguments=["--trace-connections"]) as traced, KafkaPeer(traced) as peer:
        peer.ask(framed(18, 0, b""))
        assert [told for told, _ in dumps_in(traced.stderr)] == ["> ApiVersions v0", "< ApiVersions v0"]
    assert dumps_in(broker.stderr) == []
