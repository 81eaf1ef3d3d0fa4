"""kill -9 between the outcome of a transaction and its answer, in a real process.

The client does not know how its transaction ended. It asks again after the restart, and gets the answer that was lost.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from stele.wire.error_codes import ErrorCode as E

from tests.support.dying_broker import Step, dying_broker
from tests.support.kafka_peer import KafkaPeer, create_topic
from tests.support.kafka_transactions import (
    JAVA_4,
    LIBRDKAFKA,
    TransactionalPeer,
    Versions,
    offsets_and_values,
    read,
)

Json = dict[str, Any]


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("step", "client", "is_commit"),
    [
        ("stored", LIBRDKAFKA, True),
        ("stored", JAVA_4, False),
        ("marked", JAVA_4, True),
        ("marked", LIBRDKAFKA, False),
    ],
    ids=str,
)
def test_the_end_that_was_not_answered_is_answered_when_it_is_asked_for_again(
    step: Step, client: Versions, is_commit: bool
) -> None:
    with dying_broker(step) as broker:
        with KafkaPeer(broker) as peer:
            topic_id = create_topic(peer, "orders", partitions=2)
            producer = TransactionalPeer(peer, "id", client)
            assert producer.init() == 0
            for partition in range(2):
                producer.put("orders", topic_id, b"%d" % partition, partition=partition)
            before = (producer.producer_id, producer.epoch)
            with pytest.raises(ConnectionError):
                producer.end(commit=is_commit)
        broker.await_death()
        broker.start()
        with KafkaPeer(broker) as peer:
            for partition in range(2):
                seen = read(peer, "orders", partition=partition)
                expected = [b"%d" % partition] if is_commit else []
                assert [value for _, value in offsets_and_values(seen)] == expected
                # One record and one marker, and nothing open.
                assert seen.last_stable_offset == seen.high_watermark == 2
            producer.peer = peer
            assert producer.end(commit=not is_commit) == E.INVALID_TXN_STATE
            assert producer.end(commit=is_commit) == 0
            after = (producer.producer_id, producer.epoch)
            assert after == (before[0], before[1] + client.raises_epochs)
            producer.put("orders", topic_id, b"next")
            assert producer.end(commit=True) == 0
            assert offsets_and_values(read(peer, "orders", 2)) == [(2, b"next")]


def test_a_transaction_whose_outcome_was_not_stored_is_committed_by_the_second_request() -> None:
    with dying_broker("before") as broker:
        with KafkaPeer(broker) as peer:
            topic_id = create_topic(peer, "orders")
            producer = TransactionalPeer(peer, "id", JAVA_4)
            assert producer.init() == 0
            producer.put("orders", topic_id, b"a")
            with pytest.raises(ConnectionError):
                producer.end(commit=True)
        broker.await_death()
        broker.start()
        with KafkaPeer(broker) as peer:
            assert read(peer, "orders").last_stable_offset == 0
            producer.peer = peer
            assert producer.end(commit=True) == 0
            assert offsets_and_values(read(peer, "orders")) == [(0, b"a")]


@pytest.mark.parametrize("step", ["before", "stored", "marked"])
def test_a_repeated_atomic_request_writes_once_and_gets_its_answer(step: Step) -> None:
    body: Json = {"records": [{"topic": "orders", "value": "a"}, {"topic": "audit", "value": "b"}]}
    headers = {"Idempotency-Key": "k"}
    with dying_broker(step) as broker:
        for topic in ("orders", "audit"):
            assert httpx.put(f"{broker.http_url}/v1/topics/{topic}", json={}).status_code == 201
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{broker.http_url}/v1/transactions", json=body, headers=headers)
        broker.await_death()
        broker.start()
        answer = httpx.post(f"{broker.http_url}/v1/transactions", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        # What was not stored is aborted at the start, and its offsets are taken.
        is_new = step == "before"
        assert answer.headers.get("Idempotent-Replayed") == (None if is_new else "true")
        receipts = [(one["topic"], one["partition"], one["offset"]) for one in answer.json()["records"]]
        assert receipts == [("orders", 0, 2 * is_new), ("audit", 0, 2 * is_new)]
        for topic, value in (("orders", "a"), ("audit", "b")):
            page = httpx.get(f"{broker.http_url}/v1/topics/{topic}/partitions/0/records").json()
            assert [record["value"] for record in page["records"]] == [value]
