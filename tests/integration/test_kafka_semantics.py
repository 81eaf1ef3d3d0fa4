"""The Kafka listener where Apache Kafka's own behaviour decides what is right, and where a peer asks for too much."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from stele.broker_process import BrokerProcess
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.cluster import DescribeLogDirsRequest
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)

from tests.support.batches import batch_of
from tests.support.kafka_peer import (
    KafkaPeer,
    create_topic,
    delete_topic,
    fetch,
    only_partition,
    produce,
    put,
    request_frame,
)

# The answers to some five thousand requests. A broker that does not hold its peer back has read a hundred
# times as many when it has answered these.
FLOOD_ANSWERED_BYTES = 500_000


def resident_kb(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


# ── what a peer may cost ──


@pytest.mark.long
def test_requests_that_wait_for_their_turn_stay_with_the_peer(broker: BrokerProcess, peer: KafkaPeer) -> None:
    create_topic(peer, "flood")
    put(peer, "flood", b"x")
    # Each is answered at once, so that there are never many unanswered ones; but each takes a turn.
    asks = request_frame(fetch("flood", 1), 4) * 10_000
    before, highest, sent, received = resident_kb(broker), 0, 0, 0

    def read() -> None:
        nonlocal received
        with contextlib.suppress(OSError):
            while data := peer.socket.recv(1 << 20):
                received += len(data)

    reader = threading.Thread(target=read)
    reader.start()
    writer = peer.socket.dup()
    writer.settimeout(0.1)
    while received < FLOOD_ANSWERED_BYTES:
        with contextlib.suppress(TimeoutError):
            sent += writer.send(asks)
        highest = max(highest, resident_kb(broker) - before)
    peer.socket.shutdown(socket.SHUT_RDWR)
    reader.join()
    writer.close()
    assert highest < 32 * 1024, f"{highest} KiB for the {sent >> 20} MiB that were sent"


def test_metadata_reports_a_topic_once_whichever_ids_are_requested_with_its_name(peer: KafkaPeer) -> None:
    create_topic(peer, "once", partitions=100)
    asked = [MetadataRequestTopic(name="once", topic_id=number.to_bytes(16, "big")) for number in range(1000)]
    (told,) = peer.call(MetadataRequest(topics=asked), 13).topics
    assert (told.name, len(told.partitions)) == ("once", 100)


# ── what Kafka answers ──


def test_a_batch_with_a_wrong_crc_gets_an_error_after_which_clients_retry(peer: KafkaPeer) -> None:
    create_topic(peer, "damaged")
    good = batch_of([b"x"])
    damaged = bytearray(good)
    damaged[-1] ^= 1
    # Clients send again what is answered with this, and give up at INVALID_RECORD.
    refused = only_partition(peer.call(produce("damaged", damaged), 9))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    torn = only_partition(peer.call(produce("damaged", good[:-1]), 9))
    assert torn.error_code == ErrorCode.INVALID_RECORD
    assert only_partition(peer.call(produce("damaged", good), 9)).base_offset == 0


def test_a_configuration_without_a_value_makes_no_topic(peer: KafkaPeer) -> None:
    asked = CreatableTopic(
        name="valueless",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=[CreatableTopicConfig(name="retention.ms", value=None)],
    )
    (made,) = peer.call(CreateTopicsRequest(topics=[asked]), 7).topics
    assert made.error_code == ErrorCode.INVALID_CONFIG


# ── while topics come and go ──


def test_an_idempotent_producer_continues_after_its_topic_is_deleted_and_created_again(
    peer: KafkaPeer,
) -> None:
    def send(sequence: int) -> tuple[int, int]:
        batch = batch_of([b"x"], producer_id=4_000_000, producer_epoch=0, base_sequence=sequence)
        done = only_partition(peer.call(produce("anew", batch, acks=-1), 9))
        return done.error_code, done.base_offset

    create_topic(peer, "anew")
    assert [send(0), send(1)] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]
    delete_topic(peer, "anew")
    create_topic(peer, "anew")
    # It counts by the topic's name, and to librdkafka a sequence that is refused is fatal.
    assert [send(2), send(3)] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]
    assert send(5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(2) == (ErrorCode.NONE, 0)


@pytest.mark.long
def test_log_dirs_are_described_while_topics_are_deleted(broker: BrokerProcess, peer: KafkaPeer) -> None:
    is_done = threading.Event()

    def come_and_go() -> None:
        creation = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="fleeting", num_partitions=1, replication_factor=1, assignments=(), configs=()
                )
            ]
        )
        deletion = DeleteTopicsRequest(topic_names=["fleeting"], timeout_ms=30_000)
        with KafkaPeer(broker) as other:
            for _ in range(100):
                other.call(creation, 5)
                other.call(deletion, 5)
        is_done.set()

    changer = threading.Thread(target=come_and_go)
    changer.start()
    while not is_done.is_set():
        (directory,) = peer.call(DescribeLogDirsRequest(topics=None), 4).results
        assert directory.error_code == ErrorCode.NONE
    changer.join()
