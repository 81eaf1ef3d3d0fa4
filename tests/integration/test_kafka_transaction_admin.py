"""What administrators see of transactions over the Kafka protocol, and how they abort one that hangs."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from stele.broker_process import BrokerProcess
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from stele.wire.kafka.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from load.apache_kafka import libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.kafka_peer import KafkaPeer, create_topic
from tests.support.kafka_transactions import JAVA_3, JAVA_4, TransactionalPeer, Versions, read

_numbers = itertools.count()
TOOL = "org.apache.kafka.tools.TransactionsCommand"


@pytest.fixture
def topic() -> str:
    return f"administered-{next(_numbers)}"


@pytest.fixture
def topic_id(peer: KafkaPeer, topic: str) -> bytes:
    return create_topic(peer, topic, partitions=2)


def begin(peer: KafkaPeer, transactional_id: str, versions: Versions = JAVA_3) -> TransactionalPeer:
    producer = TransactionalPeer(peer, transactional_id, versions)
    assert producer.init(timeout_ms=50_000) == 0
    return producer


def described(peer: KafkaPeer, transactional_id: str) -> tuple[object, ...]:
    answer = peer.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    (state,) = answer.transaction_states
    topics = {topic.topic: list(topic.partitions) for topic in state.topics}
    started = state.transaction_start_time_ms
    return (
        state.error_code,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        started > 0 or started,
        topics,
    )


def test_a_transaction_is_described_as_it_proceeds(peer: KafkaPeer, topic: str, topic_id: bytes) -> None:
    producer = begin(peer, f"described {topic}")
    who = producer.producer_id, producer.epoch, 50_000
    assert described(peer, producer.transactional_id) == (0, "Empty", *who, -1, {})
    producer.put(topic, topic_id, b"x", partition=1)
    producer.put(topic, topic_id, b"x", partition=0)
    assert described(peer, producer.transactional_id) == (0, "Ongoing", *who, True, {topic: [0, 1]})
    assert producer.end(commit=True) == 0
    assert described(peer, producer.transactional_id)[1] == "CompleteCommit"
    producer.put(topic, topic_id, b"x")
    assert producer.end(commit=False) == 0
    assert described(peer, producer.transactional_id)[1] == "CompleteAbort"
    assert described(peer, "nobody's")[0] == E.TRANSACTIONAL_ID_NOT_FOUND
    assert described(peer, "")[0] == E.INVALID_REQUEST


def listed(peer: KafkaPeer, version: int = 2, **filters: object) -> dict[str, str]:
    request = ListTransactionsRequest(**{"state_filters": (), "producer_id_filters": (), **filters})  # type: ignore[arg-type]
    answer = peer.call(request, version)
    assert answer.error_code == 0
    return {one.transactional_id: one.transaction_state for one in answer.transaction_states}


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_by_state_and_producer(
    peer: KafkaPeer, topic: str, topic_id: bytes, version: int
) -> None:
    idle, busy = begin(peer, f"idle {topic}"), begin(peer, f"busy {topic}")
    busy.put(topic, topic_id, b"x")
    own = {idle.transactional_id: "Empty", busy.transactional_id: "Ongoing"}
    everything = listed(peer, version)
    assert own.items() <= everything.items()
    assert busy.transactional_id in listed(peer, version, state_filters=["Ongoing", "Nonsense"])
    assert idle.transactional_id not in listed(peer, version, state_filters=["Ongoing"])
    assert listed(peer, version, state_filters=["Nonsense"]) == {}
    assert listed(peer, version, state_filters=["Dead"]) == {}
    ids = [idle.producer_id, busy.producer_id]
    assert listed(peer, version, producer_id_filters=ids) == own
    assert listed(peer, version, producer_id_filters=ids, state_filters=["Empty"]) == {
        idle.transactional_id: "Empty"
    }
    request = ListTransactionsRequest(state_filters=["Nonsense", "Empty"], producer_id_filters=())
    assert list(peer.call(request, version).unknown_state_filters) == ["Nonsense"]
    assert busy.end(commit=True) == 0


def test_transactions_are_listed_by_duration_and_pattern(
    peer: KafkaPeer, topic: str, topic_id: bytes
) -> None:
    producer = begin(peer, f"{topic}.a")
    other = begin(peer, f"{topic}.b")
    producer.put(topic, topic_id, b"x")
    # Ids without a transaction have no duration; this one is open for longer than no time at all, soon.
    while listed(peer, duration_filter=0, transactional_id_pattern=f"{topic}.*") == {}:
        pass
    assert listed(peer, duration_filter=3_600_000, transactional_id_pattern=f"{topic}.*") == {}
    assert listed(peer, transactional_id_pattern=f"{topic}[.](a|b)") == {
        producer.transactional_id: "Ongoing",
        other.transactional_id: "Empty",
    }
    assert listed(peer, transactional_id_pattern=topic) == {}, "the whole id must match"
    assert listed(peer, transactional_id_pattern=f"(.*)*{topic}(.*)*[.]a") == {
        producer.transactional_id: "Ongoing"
    }
    assert producer.transactional_id in listed(peer, transactional_id_pattern="")
    invalid = ListTransactionsRequest(
        state_filters=(), producer_id_filters=(), transactional_id_pattern="(unclosed"
    )
    assert peer.call(invalid, 2).error_code == E.INVALID_REGULAR_EXPRESSION
    assert producer.end(commit=True) == 0


def producers_of(peer: KafkaPeer, topic: str) -> list[tuple[int, int, int, int, int]]:
    """Producer id, epoch, last sequence, coordinator epoch and start of the open transaction."""
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name=topic, partition_indexes=[0])])
    (found,) = peer.call(request, 0).topics
    return [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in found.partitions[0].active_producers
    ]


def test_producers_are_described_with_the_start_of_their_transactions(
    peer: KafkaPeer, topic: str, topic_id: bytes
) -> None:
    producer = begin(peer, f"producing {topic}")
    who = producer.producer_id, producer.epoch
    producer.put(topic, topic_id, b"a", b"b")
    assert producers_of(peer, topic) == [(*who, 1, -1, 0)]
    assert producer.end(commit=True) == 0
    ((*identity, _, coordinator_epoch, start),) = producers_of(peer, topic)
    assert (tuple(identity), start) == (who, -1)
    assert coordinator_epoch >= 0
    producer.put(topic, topic_id, b"c")
    assert producers_of(peer, topic) == [(*who, 2, coordinator_epoch, 3)]
    assert producer.end(commit=False) == 0


def end_in_partition(
    peer: KafkaPeer,
    topic: str,
    producer: TransactionalPeer,
    version: int,
    *,
    commit: bool = False,
    epoch: int = 0,
) -> int:
    answer = peer.call(
        WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch + epoch,
                    transaction_result=commit,
                    coordinator_epoch=0,
                    topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
                )
            ]
        ),
        version,
    )
    assert answer.markers[0].producer_id == producer.producer_id
    (found,) = answer.markers[0].topics
    return found.partitions[0].error_code


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("versions", [JAVA_3, JAVA_4], ids=str)
def test_an_administrator_aborts_a_transaction_through_a_partition(
    broker: BrokerProcess, peer: KafkaPeer, topic: str, topic_id: bytes, versions: Versions, version: int
) -> None:
    producer = begin(peer, f"aborted {topic}", versions)
    producer.put(topic, topic_id, b"x")
    assert end_in_partition(peer, topic, producer, version, commit=True) == E.INVALID_REQUEST
    assert end_in_partition(peer, topic, producer, version, epoch=-1) == E.INVALID_PRODUCER_EPOCH
    assert end_in_partition(peer, "missing", producer, version) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert read(peer, topic).last_stable_offset == 0
    assert end_in_partition(peer, topic, producer, version) == 0
    seen = read(peer, topic)
    assert (seen.last_stable_offset, [one.first_offset for one in seen.aborted_transactions]) == (2, [0])
    assert producer.end(commit=True) != 0
    # Only what was aborted is in the audit log.
    (line,) = (line for line in broker.stderr.splitlines() if f"Topic:{topic} partition" in line)
    entry, _ = json.JSONDecoder().raw_decode(line, line.index("{"))
    assert (entry["listener"], entry["operation"]) == ("kafka", "abort-transaction")
    assert entry["resource"] == f"Topic:{topic} partition 0, producer {producer.producer_id}"


def test_the_version_of_transactions_cannot_be_changed(peer: KafkaPeer) -> None:
    update = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    answer = peer.call(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert answer.error_code == E.INVALID_UPDATE_VERSION
    assert "'transaction.version' is fixed at level 2" in answer.error_message


# ── Kafka's own tool ──


@pytest.fixture(scope="module")
def java_tools() -> None:
    with kafka_or_skip():
        libs()


def transactions(broker: BrokerProcess, *arguments: str) -> str:
    done = run_tool(TOOL, "--bootstrap-server", broker.kafka_bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
def test_kafka_transactions_finds_and_aborts_what_hangs(
    java_tools: None, broker: BrokerProcess, peer: KafkaPeer, topic: str, topic_id: bytes
) -> None:
    producer = begin(peer, f"hangs-in-{topic}")
    producer.put(topic, topic_id, b"x")
    name = re.escape(producer.transactional_id)
    shown = transactions(broker, "list")
    assert re.search(rf"(?m)^{name}\s+\d+\s+{producer.producer_id}\s+Ongoing", shown), shown
    shown = transactions(broker, "describe", "--transactional-id", producer.transactional_id)
    assert re.search(
        rf"{name}\s+{producer.producer_id}\s+{producer.epoch}\s+Ongoing\s+50000.*{topic}-0", shown
    ), shown
    shown = transactions(broker, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(rf"(?m)^{producer.producer_id}\s+{producer.epoch}\s+-1\s+0\s+\d+\s+0\b", shown), shown
    transactions(broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    seen = read(peer, topic)
    assert (seen.last_stable_offset, seen.high_watermark) == (2, 2)
