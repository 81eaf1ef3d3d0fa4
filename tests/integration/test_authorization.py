"""Access rules of a running broker: with real logins, over all listeners, and changed while clients are connected."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from click.testing import CliRunner
from stele.broker_process import BrokerProcess, run_broker
from stele.cli import stele
from stele.client import Client
from stele.errors import AuthorizationError
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.consumer_groups import ConsumerGroupHeartbeatRequest
from stele.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.groups import ListGroupsRequest
from stele.wire.kafka.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from stele.wire.kafka.share_groups import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareAcknowledgeRequest,
    ShareGroupHeartbeatRequest,
)
from stele.wire.kafka.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from stele.wire.kafka.transactions import InitProducerIdRequest

from tests.integration.test_kafka_logins import PASSWORD, add_user, handshake, plain
from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer
from tests.support.share_groups import Member
from tests.support.waiting import eventually

ROOT, ALICE = "root", "alice"
OPEN, SECRET = "open-orders", "secret-salaries"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir: Path = tmp_path_factory.mktemp("authorization") / "data"
    data_dir.mkdir()
    for user in (ROOT, ALICE):
        add_user(data_dir, user)
    # The first administrator, before the broker starts.
    made = CliRunner().invoke(stele, ["acls", "add", "--admin", f"User:{ROOT}", "--data-dir", str(data_dir)])
    assert made.exit_code == 0, made.output
    environment = {
        "STELE_AUTHENTICATION": "required",
        # This listener has no login but certificates; its clients are User:ANONYMOUS.
        "STELE_BINARY_AUTHENTICATION": "optional",
        "STELE_LOGIN_FAILURES_FREE": "10000",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        with http_of(broker, ROOT) as root:
            for topic in (OPEN, SECRET):
                assert root.put(f"/v1/topics/{topic}", json={"partitions": 2}).status_code == 201
        yield broker


def http_of(broker: BrokerProcess, user: str) -> httpx.Client:
    return httpx.Client(base_url=broker.http_url, auth=(user, PASSWORD), timeout=60.0)


@pytest.fixture
def root(broker: BrokerProcess) -> Iterator[httpx.Client]:
    """The administrator; after the test only the administrator's rules are left."""
    with http_of(broker, ROOT) as client:
        yield client
        for user in (ALICE, "ANONYMOUS", "*"):
            assert client.delete("/v1/acls", params={"principal": f"User:{user}"}).status_code == 200


@pytest.fixture
def alice(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with http_of(broker, ALICE) as client:
        yield client


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[KafkaPeer]:
    with kafka_of(broker, ALICE) as peer:
        yield peer


def kafka_of(broker: BrokerProcess, user: str) -> KafkaPeer:
    peer = KafkaPeer(broker)
    handshake(peer)
    assert peer.call(plain(user), 2).error_code == ErrorCode.NONE
    return peer


def give(root: httpx.Client, operation: str, name: str, *, user: str = ALICE, **fields: str) -> None:
    rule = {
        "principal": f"User:{user}",
        "operation": operation,
        "resource_type": "TOPIC",
        "resource_name": name,
        **fields,
    }
    answer = root.post("/v1/acls", json={"acls": [rule]})
    assert answer.status_code == 201, answer.text


def problem(answer: httpx.Response) -> tuple[int, int]:
    return answer.status_code, answer.json()["kafka_code"]


# ── the same on all listeners ──


def test_nobody_may_do_anything_without_a_rule(alice: httpx.Client, peer: KafkaPeer) -> None:
    assert problem(alice.get(f"/v1/topics/{SECRET}/partitions/0/records")) == (403, 29)
    assert problem(alice.get("/v1/groups/any")) == (403, 30)
    assert problem(alice.get("/v1/overview")) == (403, 31)
    assert problem(alice.post("/v1/producers?name=job&version=1")) == (403, 53)
    assert problem(alice.get("/metrics")) == (403, 31)
    assert (
        peer.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 2).error_code == 31
    )
    assert alice.get("/v1/topics").json() == {"topics": [], "next_after": None, "total": 0}


def test_every_documented_route_refuses_a_client_without_rights(alice: httpx.Client) -> None:
    """Except those that say nothing about topics, groups or the broker, and lists, which are empty.

    NATS left administrative APIs open to others (CVE-2025-30215).
    """
    answered: set[str] = set()
    for path, operations in alice.get("/openapi.json").json()["paths"].items():
        for method in operations:
            answer = alice.request(method, re.sub(r"\{[^}]*\}", "0", path))
            if answer.status_code != 403:
                answered.add(f"{method} {path}: {answer.status_code}")
    assert answered == {
        "get /healthz: 200",
        "get /readyz: 200",
        "get /v1/cluster: 200",
        "get /v1/groups: 200",
        # Keys of the client itself.
        "get /v1/keys: 200",
        "post /v1/keys: 400",
        "get /v1/open-transactions: 200",
        "get /v1/topics: 200",
        "get /v1/transactions: 200",
        # It depends on the body.
        "post /v1/sql: 400",
        "post /v1/transactions: 400",
    }


def test_a_refusal_does_not_tell_whether_the_topic_exists(alice: httpx.Client, peer: KafkaPeer) -> None:
    def answers(name: str) -> tuple[Any, ...]:
        topic = MetadataRequestTopic(name=name)
        (described,) = peer.call(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 12).topics
        over_http = alice.get(f"/v1/topics/{name}")
        return (
            (described.error_code, described.topic_id, described.partitions),
            over_http.status_code,
            over_http.text.replace(name, "NAME"),
        )

    known = answers(SECRET)
    assert known[0] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, bytes(16), [])
    assert known == answers("no-such-topic")


def test_a_rule_counts_at_once_and_on_all_listeners(
    root: httpx.Client, alice: httpx.Client, peer: KafkaPeer
) -> None:
    assert problem(alice.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "x"}]})) == (403, 29)
    assert produce(peer, OPEN) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    give(root, "WRITE", "open-", pattern_type="PREFIXED")
    assert alice.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "x"}]}).status_code == 200
    assert produce(peer, OPEN) == ErrorCode.NONE
    assert problem(alice.get(f"/v1/topics/{OPEN}/partitions/0/records")) == (403, 29)
    give(root, "WRITE", OPEN, permission="DENY")
    assert problem(alice.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "x"}]})) == (403, 29)
    assert produce(peer, OPEN) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # Both in one request: each topic has its own answer.
    give(root, "WRITE", SECRET)
    assert produce(peer, OPEN, SECRET) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]


def produce(peer: KafkaPeer, *topics: str) -> Any:
    data = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch_of([b"x"]))])
        for topic in topics
    ]
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data)
    codes = {one.name: one.partition_responses[0].error_code for one in peer.call(request, 9).responses}
    return codes[topics[0]] if len(topics) == 1 else [codes[topic] for topic in topics]


def test_lists_have_only_what_the_client_may_see(
    root: httpx.Client, alice: httpx.Client, peer: KafkaPeer
) -> None:
    give(root, "DESCRIBE", OPEN)
    assert [topic["name"] for topic in alice.get("/v1/topics").json()["topics"]] == [OPEN]
    assert alice.get("/v1/topics").json()["total"] == 1
    listed = peer.call(MetadataRequest(topics=None), 9).topics
    assert [topic.name for topic in listed] == [OPEN]
    described = alice.get(f"/v1/topics/{OPEN}").json()
    assert (described["partition_count"], described["effective_configs"]) == (2, {})
    give(root, "READ", "billing", resource_type="GROUP")
    assert peer.call(ListGroupsRequest(), 4).groups == []


def test_authorized_operations_are_those_of_the_client(root: httpx.Client, peer: KafkaPeer) -> None:
    give(root, "READ", OPEN)
    give(root, "DESCRIBE", "kafka-cluster", resource_type="CLUSTER")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=OPEN)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = peer.call(request, 9)
    assert answer.topics[0].topic_authorized_operations == 1 << 3 | 1 << 8
    assert answer.cluster_authorized_operations == 1 << 8
    cluster = peer.call(DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    assert cluster.cluster_authorized_operations == 1 << 8


def test_a_topic_that_may_not_be_created_is_not(
    root: httpx.Client, alice: httpx.Client, peer: KafkaPeer
) -> None:
    give(root, "WRITE", "made-", pattern_type="PREFIXED")
    assert problem(alice.post("/v1/topics/made-by-http/records", json={"records": [{"value": "x"}]})) == (
        403,
        29,
    )
    assert produce(peer, "made-by-kafka") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    creation = CreatableTopic(
        name="made-by-admin", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    (made,) = peer.call(CreateTopicsRequest(topics=[creation], timeout_ms=10_000), 5).topics
    assert made.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    names = [topic["name"] for topic in root.get("/v1/topics?prefix=made-").json()["topics"]]
    assert names == []
    give(root, "CREATE", "made-", pattern_type="PREFIXED")
    assert produce(peer, "made-by-kafka") == ErrorCode.NONE
    assert (
        alice.post("/v1/topics/made-by-http/records", json={"records": [{"value": "x"}]}).status_code == 200
    )
    assert problem(alice.delete("/v1/topics/made-by-http")) == (403, 29)
    topics = [DeleteTopicState(name="made-by-http"), DeleteTopicState(name="made-never")]
    deleted = peer.call(DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6).responses
    assert {one.error_code for one in deleted} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    for name in ("made-by-http", "made-by-kafka"):
        assert root.delete(f"/v1/topics/{name}").status_code == 204


# ── what goes on while rules change ──


def fetch_of(topic: str, *, session: int = 0, epoch: int = -1, wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, log_start_offset=-1)
    topics = [FetchTopic(topic=topic, partitions=[partition])] if topic else []
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=topics, session_id=session, session_epoch=epoch
    )


def test_a_fetch_session_ends_where_the_right_does(root: httpx.Client, peer: KafkaPeer) -> None:
    assert (
        root.post(f"/v1/topics/{SECRET}/records?partition=0", json={"records": [{"value": "x"}]}).status_code
        == 200
    )
    give(root, "READ", SECRET)
    begun = peer.call(fetch_of(SECRET, epoch=0), 11)
    (topic,) = begun.responses
    assert topic.partitions[0].error_code == ErrorCode.NONE
    assert topic.partitions[0].records
    assert begun.session_id
    root.delete("/v1/acls", params={"principal": f"User:{ALICE}"})
    # The request names no topic: the session remembers it.
    again = peer.call(fetch_of("", session=begun.session_id, epoch=1), 11)
    (topic,) = again.responses
    assert topic.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not topic.partitions[0].records


def test_a_stream_of_events_is_cut_before_the_next_record(root: httpx.Client, alice: httpx.Client) -> None:
    give(root, "READ", OPEN)
    begun, ended = threading.Event(), threading.Event()
    received = bytearray()

    def follow() -> None:
        with alice.stream(
            "GET", f"/v1/topics/{OPEN}/records", headers={"Accept": "text/event-stream"}
        ) as stream:
            begun.set()
            try:
                for piece in stream.iter_bytes():
                    received.extend(piece)
            except httpx.RemoteProtocolError:
                ended.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert begun.wait(60)
    assert root.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "before"}]}).status_code == 200
    while b"before" not in received:
        assert not ended.wait(0.01)
    root.delete("/v1/acls", params={"principal": f"User:{ALICE}"})
    assert root.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "after"}]}).status_code == 200
    assert ended.wait(60)
    follower.join()
    assert b"after" not in received


def end_of(root: httpx.Client, partition: int = 0) -> int:
    answer = root.get(f"/v1/topics/{OPEN}/partitions/{partition}/offsets", params={"at": "latest"})
    return int(answer.json()["offset"])


def test_an_upload_stores_nothing_after_its_right_ends(root: httpx.Client, alice: httpx.Client) -> None:
    give(root, "WRITE", OPEN)
    before = end_of(root)

    def lines() -> Iterator[bytes]:
        yield b'{"value": "before"}\n'
        eventually(lambda: end_of(root) > before, "the first record is stored")
        root.delete("/v1/acls", params={"principal": f"User:{ALICE}"})
        yield b'{"value": "after"}\n'

    headers = {"Content-Type": "application/x-ndjson"}
    # The response may have begun before.
    with contextlib.suppress(httpx.RemoteProtocolError):
        alice.post(f"/v1/topics/{OPEN}/records?partition=0", content=lines(), headers=headers)
    assert end_of(root) == before + 1


RULE = {"principal": "User:*", "operation": "READ", "resource_type": "TOPIC", "resource_name": SECRET}
OF_TOPIC, OF_CLUSTER = {"resource_type": "TOPIC"}, {"resource_type": "CLUSTER"}


@pytest.mark.parametrize(
    ("path", "kind", "body", "right"),
    [
        (f"/v1/topics/{OPEN}/records?partition=0", "application/json", b'{"records": [{"value": "x"}]}', ("WRITE", OPEN, OF_TOPIC)),
        (f"/v1/topics/{OPEN}/records?partition=0", "application/octet-stream", b"x", ("WRITE", OPEN, OF_TOPIC)),
        ("/v1/acls", "application/json", json.dumps({"acls": [RULE]}).encode(), ("ALTER", "kafka-cluster", OF_CLUSTER)),
    ],
)  # fmt: skip
def test_a_request_is_refused_if_its_right_ends_before_its_body_arrives(
    broker: BrokerProcess,
    root: httpx.Client,
    path: str,
    kind: str,
    body: bytes,
    right: tuple[str, str, dict[str, str]],
) -> None:
    operation, name, fields = right
    give(root, operation, name, **fields)
    before = end_of(root), root.get("/v1/acls").json()
    credentials = base64.b64encode(f"{ALICE}:{PASSWORD}".encode()).decode()
    head = [
        f"POST {path} HTTP/1.1",
        f"Host: {broker.host}:{broker.http_port}",
        f"Authorization: Basic {credentials}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Expect: 100-continue",
        "Connection: close",
        "",
        "",
    ]
    with socket.create_connection((broker.host, broker.http_port), timeout=60) as connection:
        connection.sendall("\r\n".join(head).encode())
        # The broker has checked the right, and waits for the body.
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        root.delete("/v1/acls", params={"principal": f"User:{ALICE}"})
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 403 ")
    rules = [rule for rule in before[1]["acls"] if rule["principal"] != f"User:{ALICE}"]
    assert (end_of(root), root.get("/v1/acls").json()["acls"]) == (before[0], rules)


def test_a_lease_is_checked_whenever_it_is_used(root: httpx.Client, alice: httpx.Client) -> None:
    give(root, "READ", "lease-group", resource_type="GROUP")
    give(root, "READ", OPEN)
    assert root.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "x"}]}).status_code == 200
    polled = alice.post("/v1/groups/lease-group/poll", json={"topics": [OPEN], "wait_ms": 1000}).json()
    assert polled["records"]
    lease = {"lease": polled["lease"]}
    give(root, "READ", OPEN, permission="DENY")
    for action in ("ack", "nack", "extend"):
        assert problem(alice.post(f"/v1/groups/lease-group/{action}", json=lease)) == (403, 29), action
    assert root.post("/v1/groups/lease-group/ack", json=lease).status_code == 200


# ── the binary listener, whose clients are anonymous ──


def decoded(frame: bytes) -> m.Response | m.ErrorResponse:
    return m.decode_response(frame[4], frame[5:])


def test_anonymous_clients_have_the_rights_of_their_principal(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    def ask(request: m.Request) -> m.Response | m.ErrorResponse:
        with Peer(broker) as peer:
            peer.send(request.encode())
            return decoded(peer.frame())

    answer = ask(m.ProduceRequest(topic=OPEN, data=b"x"))
    assert isinstance(answer, m.ErrorResponse)
    assert "User:ANONYMOUS is not allowed to write topic" in answer.message
    answer = ask(m.ListOffsetsRequest(topic=OPEN, partition=0, timestamp_ms=-1))
    assert isinstance(answer, m.ErrorResponse)
    assert answer.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    give(root, "WRITE", OPEN, user="ANONYMOUS")
    assert isinstance(ask(m.ProduceRequest(topic=OPEN, data=b"x")), m.ProduceResponse)
    listed = ask(m.MetadataRequest(topics=None))
    assert isinstance(listed, m.MetadataResponse)
    assert [topic.topic for topic in listed.topics] == [OPEN]
    partitions = [m.FetchPartition(topic=topic, partition=0, offset=0) for topic in (OPEN, SECRET)]
    fetched = ask(m.FetchRequest(partitions=partitions))
    assert isinstance(fetched, m.FetchResponse)
    assert [one.code for one in fetched.partitions] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    # Produces in one run are decided together; the topics of others are not.
    with Peer(broker) as peer:
        runs = [m.ProduceRequest(topic=topic, data=b"x").encode() for topic in (OPEN, SECRET, OPEN, OPEN)]
        peer.send(*runs)
        kinds = [type(decoded(peer.frame())) for _ in runs]
    assert kinds == [m.ProduceResponse, m.ErrorResponse, m.ProduceResponse, m.ProduceResponse]


def test_the_next_read_of_an_open_connection_is_refused_after_its_right_has_ended(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    assert root.post(f"/v1/topics/{OPEN}/records", json={"records": [{"value": "x"}]}).status_code == 200
    fetch = m.FetchRequest(partitions=[m.FetchPartition(topic=OPEN, partition=0, offset=0)])
    consume = m.ConsumeRequest(topic=OPEN, offset=0, batch_size=1)
    rule = {"principal": "User:ANONYMOUS", "operation": "READ"}
    with Peer(broker) as fetching, Peer(broker) as consuming:

        def are_refused() -> list[bool]:
            fetched, consumed = fetching.call(fetch), consuming.call(consume)
            assert isinstance(fetched, m.FetchResponse)
            is_consume_refused = isinstance(consumed, m.ErrorResponse)
            assert not is_consume_refused or "not allowed to read topic" in consumed.message
            return [
                fetched.partitions[0].code == ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                is_consume_refused,
            ]

        for _ in range(2):
            give(root, "READ", OPEN, user="ANONYMOUS")
            assert are_refused() == are_refused() == [False, False]
            assert root.delete("/v1/acls", params=rule).status_code == 200
            assert are_refused() == [True, True]


def test_reads_that_wait_are_refused_when_their_right_ends(broker: BrokerProcess, root: httpx.Client) -> None:
    end = m.ListOffsetsRequest(topic=OPEN, partition=0, timestamp_ms=-1)
    group = {"resource_type": "GROUP", "user": "ANONYMOUS"}
    with Peer(broker) as fetching, Peer(broker) as polling:
        give(root, "READ", OPEN, user="ANONYMOUS")
        give(root, "READ", "waiting", **group)
        other = {"records": [{"value": "read before", "partition": 1}]}
        assert root.post(f"/v1/topics/{OPEN}/records", json=other).status_code == 200
        ends = [end_of(root, 0), end_of(root, 1)]
        wanted = m.FetchPartition(topic=OPEN, partition=0, offset=ends[0], max_bytes=1 << 20)
        fetch = m.FetchRequest(partitions=[wanted], max_bytes=1 << 20, max_wait_ms=60_000)
        # The group may still join when the record comes, and must not begin after it; nor has it any other to read.
        positions = [{"topic": OPEN, "partition": at, "offset": offset} for at, offset in enumerate(ends)]
        assert root.put("/v1/groups/waiting/offsets", json={"offsets": positions}).status_code == 200
        poll = m.PollRequest(group="waiting", topics=[OPEN], max_wait_ms=60_000)
        for peer, request in ((fetching, fetch), (polling, poll)):
            # Requests that arrive together begin together: with the first answer, the second one waits.
            peer.send(end.encode(), request.encode())
            assert isinstance(decoded(peer.frame()), m.ListOffsetsResponse)
        answer = root.delete("/v1/acls", params={"principal": "User:ANONYMOUS", "resource_type": "TOPIC"})
        assert answer.status_code == 200
        record = {"records": [{"value": "secret", "partition": 0}]}
        assert root.post(f"/v1/topics/{OPEN}/records", json=record).status_code == 200
        fetched, polled = decoded(fetching.frame()), decoded(polling.frame())
        assert isinstance(fetched, m.FetchResponse)
        assert [(one.code, one.batches) for one in fetched.partitions] == [
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
        ]
        assert isinstance(polled, m.ErrorResponse)
        assert polled.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_waiting_polls_of_a_share_group_are_refused_when_their_right_ends(
    broker: BrokerProcess, root: httpx.Client, alice: httpx.Client
) -> None:
    topic, record = "waited-for", {"records": [{"value": "secret", "partition": 0}]}
    assert root.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
    for group in ("shared-over-kafka", "shared-over-http"):
        read_group(root, group)
    give(root, "READ", topic)
    answers: list[httpx.Response] = []
    poll = {"topics": [topic], "wait_ms": 60_000}
    polling = threading.Thread(
        target=lambda: answers.append(alice.post("/v1/groups/shared-over-http/share/poll", json=poll))
    )
    polling.start()
    with kafka_of(broker, ALICE) as peer:
        member = Member(peer, "shared-over-kafka", topic)
        while not member.partitions:
            member.beat()
        versions, fetch = ApiVersionsRequest(), member.fetch_request(max_wait_ms=60_000)
        # Requests that arrive together begin together: with the first answer, the second one waits.
        peer.post_all([(versions, 0), (fetch, 2)])
        peer.next_answer()
        # The poll has begun when the group has a position in the topic.
        path = "/v1/groups/shared-over-http"
        eventually(lambda: root.get(path).status_code == 200, "a group")
        answer = root.delete("/v1/acls", params={"principal": f"User:{ALICE}", "resource_type": "TOPIC"})
        assert answer.status_code == 200
        assert root.post(f"/v1/topics/{topic}/records", json=record).status_code == 200
        _, fetched = peer.next_answer()
        (part,) = fetched.responses[0].partitions
        assert (part.error_code, bytes(part.records or b"")) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
        assert not part.acquired_records
    polling.join()
    assert problem(answers[0]) == (403, 29)
    assert root.delete(f"/v1/topics/{topic}").status_code == 204


def test_a_topic_that_is_gone_is_not_created_by_the_right_to_write_alone(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    give(root, "WRITE", "passing", user="ANONYMOUS")
    produce = m.ProduceRequest(topic="passing", data=b"x")
    with Peer(broker) as peer:
        assert root.put("/v1/topics/passing").status_code == 201
        for _ in range(2):
            assert isinstance(peer.call(produce), m.ProduceResponse)
        assert root.delete("/v1/topics/passing").status_code == 204
        answer = peer.call(produce)
        assert isinstance(answer, m.ErrorResponse)
        assert "User:ANONYMOUS is not allowed to create topic" in answer.message
        assert root.get("/v1/topics/passing").status_code == 404
        give(root, "CREATE", "passing", user="ANONYMOUS")
        assert isinstance(peer.call(produce), m.ProduceResponse)
    assert root.delete("/v1/topics/passing").status_code == 204


# ── rules themselves ──


def test_the_client_library_has_an_error_of_its_own(broker: BrokerProcess) -> None:
    url = broker.http_url.replace("http://", f"http://{ALICE}:{PASSWORD}@")
    with Client(url) as client, pytest.raises(AuthorizationError) as caught:
        client.produce(SECRET, b"x")
    assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not caught.value.retriable


ANY_FILTER: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": f"User:{ALICE}",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def test_rules_over_the_kafka_protocol(broker: BrokerProcess, root: httpx.Client, peer: KafkaPeer) -> None:
    good = AclCreation(
        resource_type=2,
        resource_name=OPEN,
        resource_pattern_type=4,
        principal=f"User:{ALICE}",
        host="*",
        operation=3,
        permission_type=3,
    )
    bad = AclCreation(
        resource_type=99, resource_name="x", principal="User:x", host="*", operation=3, permission_type=3
    )
    creation = CreateAclsRequest(creations=[good, bad, good])
    assert {one.error_code for one in peer.call(creation, 3).results} == {31}
    assert peer.call(DescribeAclsRequest(**ANY_FILTER), 3).error_code == 31
    deletion = DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY_FILTER)])
    assert peer.call(deletion, 3).filter_results[0].error_code == 31
    with kafka_of(broker, ROOT) as admin:
        results = admin.call(creation, 3).results
        assert [one.error_code for one in results] == [0, ErrorCode.INVALID_REQUEST, 0]
        (resource,) = admin.call(DescribeAclsRequest(**ANY_FILTER), 3).resources
        assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, OPEN, 4)
        assert [(one.operation, one.permission_type) for one in resource.acls] == [(3, 3)]
        wrong: dict[str, Any] = {**ANY_FILTER, "operation": 0}
        unknown = admin.call(DescribeAclsRequest(**wrong), 3)
        assert unknown.error_code == ErrorCode.INVALID_REQUEST
        (result,) = admin.call(deletion, 3).filter_results
        assert [one.resource_name for one in result.matching_acls] == [OPEN]
        assert admin.call(DescribeAclsRequest(**ANY_FILTER), 3).resources == []


def test_the_command_line_changes_rules_of_a_running_broker(
    broker: BrokerProcess, root: httpx.Client, alice: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STELE_PASSWORD", PASSWORD)
    url = broker.http_url.replace("http://", f"http://{ROOT}@")

    def run(*arguments: str) -> list[str]:
        done = CliRunner().invoke(stele, ["acls", *arguments, "--url", url])
        assert done.exit_code == 0, done.output
        return done.output.splitlines()

    read = ("--principal", f"User:{ALICE}", "--operation", "read", "--topic", OPEN)
    assert run("add", *read) == [f"ALLOW  User:{ALICE}  READ  TOPIC {OPEN}  from *"]
    assert alice.get(f"/v1/topics/{OPEN}/partitions/0/records").status_code == 200
    assert f"ALLOW  User:{ALICE}  READ  TOPIC {OPEN}  from *" in run("list", "--topic", OPEN)
    assert run("remove", *read) == [f"ALLOW  User:{ALICE}  READ  TOPIC {OPEN}  from *"]
    assert problem(alice.get(f"/v1/topics/{OPEN}/partitions/0/records")) == (403, 29)
    refused = CliRunner().invoke(stele, ["acls", "remove", "--url", url])
    assert refused.exit_code == 2
    url = broker.http_url.replace("http://", f"http://{ALICE}@")
    refused = CliRunner().invoke(stele, ["acls", "list", "--url", url])
    assert refused.exit_code == 1
    assert "User:alice is not allowed to describe the cluster" in refused.output


def test_invalid_requests_for_rules_say_what_to_do(root: httpx.Client) -> None:
    rule = {"principal": "alice", "operation": "READ", "resource_type": "TOPIC", "resource_name": "x"}
    answer = root.post("/v1/acls", json={"acls": [rule]})
    assert answer.status_code == 400
    assert "write it as User:NAME" in answer.json()["detail"]
    assert root.post("/v1/acls", json={"acls": [{**rule, "operation": "FLY"}]}).status_code == 400
    assert root.delete("/v1/acls").status_code == 400
    assert root.get("/v1/acls?pattern_type=SOME").status_code == 400
    with_query = root.get("/v1/acls", params={"principal": f"User:{ROOT}", "resource_type": "GROUP"})
    (found,) = with_query.json()["acls"]
    assert found == {
        "resource_type": "GROUP",
        "resource_name": "*",
        "pattern_type": "LITERAL",
        "principal": "User:root",
        "host": "*",
        "operation": "ALL",
        "permission": "ALLOW",
    }


def test_denials_are_in_the_audit_log(broker: BrokerProcess, alice: httpx.Client) -> None:
    assert alice.get("/v1/topics/audited-name/partitions/0/records").status_code == 403
    lines = [line for line in broker.stderr.splitlines() if "audited-name" in line]
    assert len(lines) == 1
    entry, _ = json.JSONDecoder().raw_decode(lines[0], lines[0].index("{"))
    assert (entry["listener"], entry["principal"], entry["verdict"]) == ("http", "User:alice", "denied")
    assert (entry["operation"], entry["resource"]) == ("READ TOPIC", "audited-name")


# ── groups whose members the broker assigns ──


def read_group(root: httpx.Client, group: str) -> None:
    give(root, "READ", group, resource_type="GROUP")


def test_a_member_subscribes_only_to_topics_that_it_may_describe(root: httpx.Client, peer: KafkaPeer) -> None:
    def codes(topic: str) -> tuple[int, int]:
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="assigned",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=(),
        )
        share = ShareGroupHeartbeatRequest(
            group_id="shared", member_id="m", member_epoch=0, subscribed_topic_names=[topic]
        )
        return peer.call(consumer, 1).error_code, peer.call(share, 1).error_code

    assert codes(OPEN) == (ErrorCode.GROUP_AUTHORIZATION_FAILED,) * 2
    for group in ("assigned", "shared"):
        read_group(root, group)
    assert codes(OPEN) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED,) * 2
    give(root, "DESCRIBE", OPEN)
    assert codes(SECRET) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED,) * 2
    assert codes(OPEN) == (ErrorCode.NONE,) * 2


def test_a_regular_expression_finds_only_topics_that_the_client_may_describe(
    root: httpx.Client, peer: KafkaPeer
) -> None:
    read_group(root, "found")
    give(root, "DESCRIBE", OPEN)
    answer = peer.call(
        ConsumerGroupHeartbeatRequest(
            group_id="found",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=".*",
            topic_partitions=(),
        ),
        1,
    )
    assert answer.error_code == ErrorCode.NONE
    described = root.get("/v1/groups/found").json()
    assert [part["topic"] for part in described["members"][0]["assignment"]] == [OPEN]


def test_records_of_a_share_group_need_the_right_to_read_its_topics(
    broker: BrokerProcess, root: httpx.Client, alice: httpx.Client, peer: KafkaPeer
) -> None:
    for topic in (OPEN, SECRET):
        root.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "x", "partition": 0}]})
    path = "/v1/groups/queue/share"
    told = root.post(f"{path}/poll", json={"topics": [OPEN, SECRET], "from": "earliest", "lock": "mine"})
    assert {record["topic"] for record in told.json()["records"]} == {OPEN, SECRET}
    assert problem(alice.post(f"{path}/poll", json={"topics": [OPEN]})) == (403, 30)
    read_group(root, "queue")
    assert problem(alice.post(f"{path}/poll", json={"topics": [OPEN]})) == (403, 29)
    give(root, "READ", OPEN)
    assert alice.post(f"{path}/poll", json={"topics": [OPEN]}).status_code == 200
    assert problem(alice.post(f"{path}/poll", json={"topics": [OPEN, SECRET]})) == (403, 29)
    # A lock is no right: it holds a record of the other topic.
    for action in ("ack", "release", "reject", "renew"):
        assert problem(alice.post(f"{path}/{action}", json={"lock": "mine"})) == (403, 29)

    member = Member(peer, "queue", OPEN)
    ids = {name: UUID(root.get(f"/v1/topics/{name}").json()["topic_id"]).bytes for name in (OPEN, SECRET)}
    member.partitions = [(ids[OPEN], 0), (ids[SECRET], 0)]
    answer = peer.call(member.fetch_request(), 2)
    assert {one.topic_id: one.partitions[0].error_code for one in answer.responses}[ids[SECRET]] == (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    acknowledging = {
        name: peer.call(
            ShareAcknowledgeRequest(
                group_id="queue",
                member_id=member.member_id,
                share_session_epoch=epoch,
                topics=[
                    AcknowledgeTopic(
                        topic_id=ids[name],
                        partitions=[
                            AcknowledgePartition(
                                partition_index=0,
                                acknowledgement_batches=[
                                    AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
                                ],
                            )
                        ],
                    )
                ],
            ),
            2,
        )
        .responses[0]
        .partitions[0]
        .error_code
        for epoch, name in enumerate((OPEN, SECRET), 1)
    }
    assert acknowledging == {
        # It is the administrator's lock that holds the record.
        OPEN: ErrorCode.INVALID_RECORD_STATE,
        SECRET: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    described = peer.call(
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id="queue", topics=None)]
        ),
        1,
    ).groups[0]
    assert [topic.topic_name for topic in described.topics] == [OPEN]


def test_a_statement_needs_the_right_to_read_each_topic_that_it_names(
    root: httpx.Client, alice: httpx.Client
) -> None:
    give(root, "READ", OPEN)

    def asked(sql: str) -> tuple[int, str]:
        answer = alice.post("/v1/sql", json={"sql": sql})
        return answer.status_code, answer.json().get("detail", "")

    assert asked(f'select count(*) from "{OPEN}"')[0] == 200
    for sql in (
        f'select count(*) from "{SECRET}"',
        f'select count(*) from main."{SECRET}"',
        f'select count(*) from "{OPEN}", "{SECRET}"',
        f'select 1 where exists (with x as (select * from "{SECRET}") select * from x)',
        f'select (select count(*) from "{SECRET}") from "{OPEN}"',
        f'describe "{SECRET}"',
        f'select count(*) from "{SECRET}$raw"',
        f'select count(*) from "{OPEN}" join "{SECRET}" using (city)',
        f'summarize "{SECRET}"',
        # Whether a topic exists is not said to those who may not read it.
        'select count(*) from "no-such-topic"',
    ):
        assert asked(sql)[0] == 403, sql
    # Neither do hints name it.
    give(root, "READ", SECRET[:-1])
    status, detail = asked(f'select count(*) from "{SECRET[:-1]}"')
    assert (status, "did you mean" in detail) == (404, False)
    assert "did you mean" not in asked(f"select count(*) from {SECRET}")[1]
