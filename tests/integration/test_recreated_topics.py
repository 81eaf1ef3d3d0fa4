"""A position in a topic that was deleted is none in the topic that was created under its name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from stele import AsyncClient, AsyncConsumer, Client, Consumer
from stele.broker_process import BrokerProcess
from stele.errors import SteleClientError, UnknownTopicError
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

from tests.support.binary_peer import Peer

OLD, NEW = 10, 20


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=30) as client:
        yield client


def fill(http: httpx.Client, topic: str, count: int, name: str) -> None:
    records = [{"value": f"{name}-{number}"} for number in range(count)]
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
    assert http.post(f"/v1/topics/{topic}/records", json={"records": records}).status_code == 200


@pytest.fixture
def topic(http: httpx.Client, request: pytest.FixtureRequest) -> Iterator[str]:
    name = re.sub(r"[^a-z0-9]+", ".", request.node.name)
    fill(http, name, OLD, "old")
    yield name
    http.delete(f"/v1/topics/{name}")


def create_again(http: httpx.Client, topic: str) -> None:
    """The topic of this name has more records than the one before, so that any position of that is in it."""
    assert http.delete(f"/v1/topics/{topic}").status_code == 204
    fill(http, topic, NEW, "new")


# ── leases ──


def poll(http: httpx.Client, topic: str, **given: Any) -> dict[str, Any]:
    # A group gets the partitions of a new topic soon, not at once.
    asked = {"topics": [topic], "lease_ms": 3_600_000, "wait_ms": 10_000, **given}
    answer = http.post(f"/v1/groups/of-{topic}/poll", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def values(polled: dict[str, Any]) -> list[str]:
    return [record["value"] for record in polled["records"]]


@pytest.mark.parametrize("how", ["ack", "nack", "extend"])
def test_a_lease_on_records_of_a_deleted_topic_is_over(http: httpx.Client, topic: str, how: str) -> None:
    lease = poll(http, topic, max_records=8)["lease"]
    create_again(http, topic)
    also = {"lease_ms": 30_000} if how == "extend" else {}
    answer = http.post(f"/v1/groups/of-{topic}/{how}", json={"lease": lease, **also})
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/lease-fenced")
    # Nothing of the new topic is acknowledged, or held until the old lease would have ended.
    assert values(poll(http, topic)) == [f"new-{number}" for number in range(NEW)]


def test_a_repeated_poll_gets_no_lease_on_records_of_a_deleted_topic(http: httpx.Client, topic: str) -> None:
    first = poll(http, topic, poll_id="p", max_records=8)
    assert values(poll(http, topic, poll_id="p", max_records=8)) == values(first)
    create_again(http, topic)
    again = poll(http, topic, poll_id="p", max_records=8)
    assert again["lease"] != first["lease"]
    assert values(again) == [f"new-{number}" for number in range(8)]


def test_a_lease_from_before_a_restart_is_over_if_its_topic_was_created_again(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    lease = poll(http, topic, max_records=8)["lease"]
    create_again(http, topic)
    broker.stop()
    broker.start()
    with httpx.Client(base_url=broker.http_url) as restarted:
        answer = restarted.post(f"/v1/groups/of-{topic}/ack", json={"lease": lease})
        assert answer.status_code == 409
        assert values(poll(restarted, topic)) == [f"new-{number}" for number in range(NEW)]


def test_a_client_of_the_binary_protocol_acknowledges_nothing_of_the_new_topic(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    with Client(broker.binary_url) as client:
        with client.group(f"of-{topic}", topic) as group:
            batch = group.poll()
            assert batch is not None
            assert next(iter(batch)).value == b"old-0"
            create_again(http, topic)
            with pytest.raises(SteleClientError, match="was deleted"):
                batch.ack()
        assert values(poll(http, topic)) == [f"new-{number}" for number in range(NEW)]


# ── positions that clients keep ──


def page(http: httpx.Client, topic: str, **headers: str) -> httpx.Response:
    return http.get(
        f"/v1/topics/{topic}/partitions/0/records", params={"from": 5}, headers={"Accept": "*/*", **headers}
    )


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "application/octet-stream"])
def test_a_page_says_of_which_topic_it_is_and_continues_in_no_other(
    http: httpx.Client, topic: str, accept: str
) -> None:
    first = page(http, topic, Accept=accept)
    topic_id = http.get(f"/v1/topics/{topic}").json()["topic_id"]
    assert first.headers["Topic-Id"] == topic_id
    meant = {"Accept": accept, "Topic-Id": topic_id}
    assert page(http, topic, **meant).status_code == 200
    create_again(http, topic)
    answer = page(http, topic, **meant)
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/topic-recreated")
    assert answer.json()["kafka_code"] == ErrorCode.UNKNOWN_TOPIC_ID
    # A client that does not say which topic it means gets that of the name.
    assert page(http, topic, Accept=accept).status_code == 200
    assert page(http, topic, **{"Topic-Id": "orders"}).status_code == 400


def first_event(http: httpx.Client, path: str, last: str | None = None) -> tuple[int, str]:
    """Return the status, and the id of the event after the records that are there, or the type of the problem."""
    headers = {"Accept": "text/event-stream"} | ({} if last is None else {"Last-Event-ID": last})
    with http.stream("GET", path, params={"from": "earliest"}, headers=headers) as response:
        if response.status_code != 200:
            return response.status_code, str(httpx.Response(200, content=response.read()).json()["type"])
        for line in response.iter_lines():
            if line.startswith(f"id: 0:{OLD - 1}"):
                return 200, line.removeprefix("id: ")
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize("path", ["records", "partitions/0/records"])
def test_a_stream_is_not_resumed_in_another_topic(http: httpx.Client, topic: str, path: str) -> None:
    path = f"/v1/topics/{topic}/{path}"
    status, last = first_event(http, path)
    assert status == 200
    assert first_event(http, path, last) == (200, last)
    create_again(http, topic)
    assert first_event(http, path, last) == (410, "/problems/topic-recreated")


@pytest.mark.parametrize("protocol", ["binary", "http"])
def test_a_consumer_does_not_continue_in_another_topic(
    broker: BrokerProcess, http: httpx.Client, topic: str, protocol: str
) -> None:
    url = broker.binary_url if protocol == "binary" else broker.http_url
    with Client(url) as client, Consumer(client, topic) as consumer:
        assert [record.value for record in consumer.poll()] == [b"old-%d" % n for n in range(OLD)]
        create_again(http, topic)
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="was deleted"):
                consumer.poll()
        with Consumer(client, topic) as another:
            assert [record.value for record in another.poll()] == [b"new-%d" % n for n in range(NEW)]


async def refusal(consumer: AsyncConsumer[bytes]) -> str:
    try:
        while not await consumer.poll():
            pass
    except UnknownTopicError as error:
        return str(error)
    raise AssertionError("records of another topic")


def test_an_asyncio_consumer_does_not_continue_in_another_topic(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    async def consume() -> None:
        async with AsyncClient(broker.binary_url) as client, AsyncConsumer(client, topic) as consumer:
            assert len(await consumer.poll()) == OLD
            await asyncio.to_thread(create_again, http, topic)
            errors = [await refusal(consumer) for _ in range(3)]
            # Its fetch may have waited when the topic was deleted, so the first one may say only that.
            assert "was deleted" in errors[-1]

    asyncio.run(consume())


def test_a_fetch_that_names_topic_ids_answers_in_the_order_of_the_request(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    other = f"{topic}-other"
    fill(http, other, 3, "other")
    ids = {name: UUID(http.get(f"/v1/topics/{name}").json()["topic_id"]).bytes for name in (topic, other)}
    create_again(http, topic)
    request = m.TopicFetchRequest(
        partitions=[m.FetchPartition(topic=name, partition=0, offset=0) for name in (other, topic, other)],
        topic_ids=[m.TopicIdentity(topic=name, topic_id=topic_id) for name, topic_id in ids.items()],
    )
    with Peer(broker) as peer:
        answer = peer.call(request)
    assert isinstance(answer, m.TopicFetchResponse)
    assert [(one.topic, one.code) for one in answer.partitions] == [
        (other, ErrorCode.NONE),
        (topic, ErrorCode.UNKNOWN_TOPIC_ID),
        (other, ErrorCode.NONE),
    ]
    assert http.delete(f"/v1/topics/{other}").status_code == 204
