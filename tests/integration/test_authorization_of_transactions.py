"""The rights of a transaction over the Kafka protocol, HTTP and the binary protocol."""

from __future__ import annotations

import httpx
from stele.broker_process import BrokerProcess
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from tests.integration import test_authorization
from tests.integration.test_authorization import OPEN, SECRET, give, problem
from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.kafka_peer import KafkaPeer

broker, root, peer = test_authorization.broker, test_authorization.root, test_authorization.peer
alice = test_authorization.alice


def test_a_transaction_needs_its_rights(root: httpx.Client, peer: KafkaPeer) -> None:
    def codes() -> list[int]:
        """The outcome of each request for the transactional id, which does not exist."""
        topic = AddPartitionsToTxnTopic(name=OPEN, partitions=[0])
        (added,) = peer.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="job",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[topic],
            ),
            3,
        ).results_by_topic_v3_and_below
        offsets = AddOffsetsToTxnRequest(
            transactional_id="job", producer_id=1, producer_epoch=0, group_id="billing"
        )
        end = EndTxnRequest(transactional_id="job", producer_id=1, producer_epoch=0, committed=True)
        (state,) = peer.call(DescribeTransactionsRequest(transactional_ids=["job"]), 0).transaction_states
        marker = WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="missing", partition_indexes=[0])],
            coordinator_epoch=-1,
        )
        (written,) = peer.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
        return [
            added.results_by_partition[0].partition_error_code,
            peer.call(offsets, 3).error_code,
            peer.call(end, 3).error_code,
            state.error_code,
            written.topics[0].partitions[0].error_code,
        ]

    assert codes() == [53, 53, 53, 53, 31]
    give(root, "WRITE", "job", resource_type="TRANSACTIONAL_ID")
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert codes() == [29, 30, unknown, not_found, 31]
    give(root, "WRITE", OPEN)
    give(root, "READ", "billing", resource_type="GROUP")
    give(root, "CLUSTER_ACTION", "kafka-cluster", resource_type="CLUSTER")
    assert codes() == [unknown, unknown, unknown, not_found, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# ── over HTTP ──


def test_a_transaction_in_one_request_needs_the_rights_of_all_its_parts(
    root: httpx.Client, alice: httpx.Client
) -> None:
    give(root, "WRITE", OPEN)
    record = {"topic": OPEN, "value": "x"}
    offset = {"group": "atomic-group", "topic": OPEN, "partition": 0, "offset": 0}

    def transact(**body: object) -> httpx.Response:
        return alice.post("/v1/transactions", json=body)

    assert transact(records=[record]).status_code == 200
    end = root.get(f"/v1/topics/{OPEN}/partitions/0/offsets").json()
    assert problem(transact(records=[record, {"topic": SECRET, "value": "x"}])) == (403, 29)
    assert problem(transact(records=[record, {"topic": "not-there", "value": "x"}])) == (403, 29)
    assert problem(transact(records=[record], offsets=[offset])) == (403, 30)
    give(root, "READ", "atomic-group", resource_type="GROUP")
    assert problem(transact(records=[record], offsets=[offset])) == (403, 29)
    assert root.get(f"/v1/topics/{OPEN}/partitions/0/offsets").json() == end
    assert root.get("/v1/topics/not-there").status_code == 404
    give(root, "READ", OPEN)
    assert transact(records=[record], offsets=[offset]).status_code == 200


def test_a_transaction_over_several_requests_needs_the_right_to_its_id(
    root: httpx.Client, alice: httpx.Client
) -> None:
    give(root, "WRITE", OPEN)
    assert problem(alice.post("/v1/transactions/http-job/begin")) == (403, 53)
    give(root, "WRITE", "http-job", resource_type="TRANSACTIONAL_ID")
    begun = alice.post("/v1/transactions/http-job/begin")
    assert begun.status_code == 200, begun.text
    token = {name: begun.headers[name] for name in ("Producer-Id", "Producer-Epoch")}

    def send(action: str, body: object = None) -> httpx.Response:
        return alice.post(f"/v1/transactions/http-job/{action}", json=body, headers=token)

    assert problem(send("records", {"records": [{"topic": SECRET, "value": "x"}]})) == (403, 29)
    assert send("records", {"records": [{"topic": OPEN, "value": "x"}]}).status_code == 200
    lease = {"group": "other-group", "lease": "x"}
    assert problem(send("settle", {"leases": [lease]})) == (403, 30)

    # What is open shows to those who may see it, and only an administrator ends it for others.
    assert [one["transactional_id"] for one in alice.get("/v1/transactions").json()["transactions"]] == [
        "http-job"
    ]
    assert [one["topic"] for one in alice.get("/v1/open-transactions").json()["transactions"]] == [OPEN]
    give(root, "DESCRIBE", "http-job", resource_type="TRANSACTIONAL_ID", permission="DENY")
    assert alice.get("/v1/transactions").json()["transactions"] == []
    (opened,) = alice.get("/v1/open-transactions").json()["transactions"]
    assert opened["transactional_id"] is None
    assert problem(alice.delete("/v1/transactions/http-job")) == (403, 31)
    assert send("commit").status_code == 200


# ── several at once, over the binary protocol ──


def test_a_joint_commit_needs_the_right_to_every_id_that_it_ends(
    broker: BrokerProcess, root: httpx.Client
) -> None:
    own, other = "joint-1", "joint-2"
    give(root, "WRITE", OPEN, user="ANONYMOUS")
    give(root, "WRITE", own, user="ANONYMOUS", resource_type="TRANSACTIONAL_ID")
    begun = root.post(f"/v1/transactions/{other}/begin")
    token = {name: begun.headers[name] for name in ("Producer-Id", "Producer-Epoch")}
    records = {"records": [{"topic": OPEN, "value": "x"}]}
    assert root.post(f"/v1/transactions/{other}/records", json=records, headers=token).status_code == 200
    foreign = m.OpenTransaction(
        transactional_id=other,
        producer_id=int(token["Producer-Id"]),
        producer_epoch=int(token["Producer-Epoch"]),
    )

    def states() -> dict[str, str]:
        listed = root.get("/v1/transactions").json()["transactions"]
        return {one["transactional_id"]: one["state"] for one in listed if "joint" in one["transactional_id"]}

    with Peer(broker) as peer:

        def refusal(request: m.Request) -> int:
            answer = peer.call(request)
            assert isinstance(answer, m.ErrorResponse), answer
            return answer.code

        denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert refusal(m.InitTransactionsRequest(transactional_id=other, timeout_ms=60_000)) == denied
        producer = peer.call(m.InitTransactionsRequest(transactional_id=own, timeout_ms=60_000))
        assert isinstance(producer, m.InitTransactionsResponse)
        batch = batch_of(
            [b"y"],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=True,
        )
        sent = peer.call(
            m.TransactionalProduceRequest(
                topic=OPEN, partition=0, acks=-1, batches=batch, transactional_id=own
            )
        )
        assert not isinstance(sent, m.ErrorResponse), sent
        mine = m.OpenTransaction(
            transactional_id=own, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
        )

        assert refusal(m.CommitTransactionsRequest(transactions=[mine, foreign])) == denied
        assert refusal(m.CommitTransactionsRequest(transactions=[mine], abandoned_prefix="joint-")) == denied
        # A prefix is refused before anything looks for ids that have it, and an id that is found is not named.
        for prefix in ("joint-", "nobody-has-this"):
            request = m.CommitTransactionsRequest(transactions=[mine], abandoned_prefix=prefix)
            refused = peer.call(request)
            assert isinstance(refused, m.ErrorResponse), refused
            assert (refused.code, other in refused.message) == (denied, False)
        assert states() == {own: "Ongoing", other: "Ongoing"}, "all or none"
        committed = peer.call(m.CommitTransactionsRequest(transactions=[mine], abandoned_prefix="joint-1"))
        assert isinstance(committed, m.CommitTransactionsResponse), committed
        assert states() == {own: "CompleteCommit", other: "Ongoing"}
    assert root.post(f"/v1/transactions/{other}/abort", headers=token).status_code == 200
