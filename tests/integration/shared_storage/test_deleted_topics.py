"""A topic that one broker deletes while another serves it is an unknown topic there, never an internal error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import httpx
import pytest
from stele.wire import messages as m

from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.brokers import Brokers

BROKERS = 2
ENVIRONMENT = {"STELE_AUTO_CREATE_TOPICS_ENABLE": "false"}

pytestmark = pytest.mark.long

# Each time the deletion meets another moment of the requests.
_TIMES = 2
_TIMEOUT_S = 60
_names = count()


def make_topic(brokers: Brokers, name: str, value: str = "x") -> None:
    with httpx.Client(base_url=brokers[1].http_url) as http:
        http.put(f"/v1/topics/{name}", json={"partitions": 2}).raise_for_status()
        http.post(
            f"/v1/topics/{name}/records", json={"records": [{"key": "k", "value": value, "partition": 0}]}
        ).raise_for_status()


def delete_topic(brokers: Brokers, name: str) -> None:
    httpx.delete(f"{brokers[1].http_url}/v1/topics/{name}", timeout=_TIMEOUT_S).raise_for_status()


def served_until_it_is_gone(brokers: Brokers, name: str, is_gone: Callable[[], bool]) -> None:
    """Delete the topic at the first broker while the second is asked about it all the time."""
    is_served = threading.Event()

    def ask() -> None:
        for _ in range(3):
            is_gone()
        is_served.set()
        while not is_gone():
            pass

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        while not is_served.wait(0.01):
            assert not asking.done() or asking.result() is None
        delete_topic(brokers, name)
        asking.result(_TIMEOUT_S)


HTTP: dict[str, Callable[[httpx.Client, str], httpx.Response]] = {
    "describe": lambda http, name: http.get(f"/v1/topics/{name}"),
    "alter": lambda http, name: http.patch(
        f"/v1/topics/{name}", json={"configs": {"retention.ms": "1000000"}}
    ),
    "produce": lambda http, name: http.post(
        f"/v1/topics/{name}/records", json={"records": [{"value": "y", "partition": 0}]}
    ),
    "read": lambda http, name: http.get(
        f"/v1/topics/{name}/partitions/0/records", params={"from": "earliest"}
    ),
    "offset by time": lambda http, name: http.get(
        f"/v1/topics/{name}/partitions/0/offsets", params={"at": "-1h"}
    ),
    "purge": lambda http, name: http.delete(f"/v1/topics/{name}/partitions/0/records?before=0"),
    "flush": lambda http, name: http.post(f"/v1/topics/{name}/flush"),
    "search": lambda http, name: http.get(f"/v1/topics/{name}/search", params={"key": "k"}),
    "key": lambda http, name: http.get(f"/v1/topics/{name}/keys/k"),
    "table": lambda http, name: http.get(f"/v1/topics/{name}/table"),
    "poll": lambda http, name: http.post(
        f"/v1/groups/g-{name}/poll", json={"topics": [name], "wait_ms": 50, "lease_ms": 1000}
    ),
    "transaction": lambda http, name: http.post(
        "/v1/transactions", json={"records": [{"topic": name, "value": "z", "partition": 0}]}
    ),
}


@pytest.mark.parametrize("ask", HTTP.values(), ids=HTTP)
def test_http_clients_are_told_that_it_does_not_exist(
    brokers: Brokers, ask: Callable[[httpx.Client, str], httpx.Response]
) -> None:
    with httpx.Client(base_url=brokers[2].http_url, timeout=_TIMEOUT_S) as http:
        for _ in range(_TIMES):
            name = f"gone-{next(_names)}"
            make_topic(brokers, name)

            def is_gone(name: str = name) -> bool:
                answer = ask(http, name)
                # A broker may look once more, or wait for the database; it says so.
                assert answer.status_code < 500 or answer.json()["retriable"], answer.text
                assert answer.status_code != 500, answer.text
                return answer.status_code == 404

            served_until_it_is_gone(brokers, name, is_gone)


def _batch(name: str) -> m.Request:
    return m.ProduceBatchRequest(topic=name, partition=0, acks=-1, batches=bytes(batch_of([b"y"])))


BINARY: dict[str, Callable[[str], m.Request]] = {
    "fetch": lambda name: m.FetchRequest(
        max_wait_ms=20,
        min_bytes=1,
        max_bytes=1000,
        partitions=[m.FetchPartition(topic=name, partition=1, offset=0, max_bytes=1000)],
    ),
    "list offsets": lambda name: m.ListOffsetsRequest(topic=name, partition=0, timestamp_ms=0),
    "describe": lambda name: m.DescribeTopicRequest(topic=name),
    "metadata": lambda name: m.MetadataRequest(topics=[name], auto_create=False),
    "flush": lambda name: m.FlushTopicRequest(topic=name),
    "producer state": lambda name: m.ProducerStateRequest(topic=name, partition=0, producer_id=1),
    "produce": _batch,
}


@pytest.mark.parametrize("request_of", BINARY.values(), ids=BINARY)
def test_binary_clients_are_told_that_it_does_not_exist(
    brokers: Brokers, request_of: Callable[[str], m.Request]
) -> None:
    with Peer(brokers[2]) as peer:
        for _ in range(_TIMES):
            name = f"gone-{next(_names)}"
            make_topic(brokers, name)

            def is_gone(name: str = name) -> bool:
                answer = peer.call(request_of(name))
                if isinstance(answer, m.FetchResponse):
                    codes = {part.code for part in answer.partitions}
                elif isinstance(answer, m.MetadataResponse):
                    codes = {topic.code for topic in answer.topics}
                elif isinstance(answer, m.ErrorResponse):
                    codes = {answer.code}
                else:
                    codes = set[m.ErrorCode]()
                assert m.ErrorCode.UNKNOWN_SERVER_ERROR not in codes, answer
                return m.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes

            served_until_it_is_gone(brokers, name, is_gone)


def test_a_recreated_topic_shows_nothing_of_the_one_before(brokers: Brokers) -> None:
    name = f"anew-{next(_names)}"
    make_topic(brokers, name, "generation 0")
    newest = 0
    is_done = threading.Event()

    def read() -> list[str]:
        values: list[str] = []
        with httpx.Client(base_url=brokers[2].http_url, timeout=_TIMEOUT_S) as http:
            while not is_done.is_set():
                answer = HTTP["read"](http, name)
                assert answer.status_code in (200, 404, 400, 503), answer.text
                if answer.status_code == 200:
                    values += [record["value"] for record in answer.json()["records"]]
        return values

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read)
        for newest in range(1, 8):
            delete_topic(brokers, name)
            make_topic(brokers, name, f"generation {newest}")
        is_done.set()
        generations = [int(value.removeprefix("generation ")) for value in reading.result(_TIMEOUT_S)]
    assert generations == sorted(generations), "records of a deleted topic come back"
