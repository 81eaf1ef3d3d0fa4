"""A place in a log that is gone is answered in the same way by everything that can be resumed."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.errors import OffsetOutOfRangeError
from stele.wire.error_codes import ErrorCode

from tests.support.kafka_peer import WITHOUT_RETENTION, KafkaPeer, fetch, only_partition

TOPIC = "/v1/topics/orders"
SSE, NDJSON = {"accept": "text/event-stream"}, {"accept": "application/x-ndjson"}
# Deleted up to 6; the log ends at 10.
START, END = 6, 10
GONE = {0: 410, 3: 410, START - 1: 410, START: 200, END: 200, END + 1: 416, 2**62: 416}


ENVIRONMENT = WITHOUT_RETENTION


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as client:
        client.put(TOPIC, json={"partitions": 2})
        records = [{"value": n, "partition": 0} for n in range(END)]
        client.post(f"{TOPIC}/records", json={"records": records})
        client.delete(f"{TOPIC}/partitions/0/records", params={"before": START})
        yield client


def answer(
    http: httpx.Client, path: str, headers: dict[str, str], params: dict[str, int] | None = None
) -> tuple[int, str]:
    """Return the status and the type of the problem; a stream is left at once."""
    with http.stream("GET", path, headers=headers, params=params) as response:
        if response.status_code == 200:
            return 200, ""
        response.read()
        problem = response.json()
        assert problem["kafka_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
        # Where the client can go on.
        assert (problem["log_start_offset"], problem["log_end_offset"]) == (START, END)
        return response.status_code, problem["type"]


@pytest.mark.parametrize(("offset", "status"), GONE.items())
def test_reads_and_streams_answer_alike(http: httpx.Client, offset: int, status: int) -> None:
    partition = f"{TOPIC}/partitions/0/records"
    expected = status, {410: "/problems/offset-gone", 416: "/problems/offset-out-of-range", 200: ""}[status]
    given = {"from": offset}
    answers = {
        "page": answer(http, partition, {}, given),
        "NDJSON": answer(http, partition, NDJSON, given),
        "stream": answer(http, partition, SSE, given),
    }
    if offset:
        # An id is the last offset that was seen.
        seen = {"last-event-id": f"0:{offset - 1}"}
        answers["stream resumed"] = answer(http, partition, SSE | seen)
        answers["tail resumed"] = answer(http, f"{TOPIC}/records", SSE | seen)
        answers["tail resumed as NDJSON"] = answer(http, f"{TOPIC}/records", NDJSON | seen)
    assert answers == dict.fromkeys(answers, expected)


@pytest.mark.parametrize(("offset", "status"), GONE.items())
def test_the_other_protocols_refuse_the_same_places(
    http: httpx.Client, broker: BrokerProcess, offset: int, status: int
) -> None:
    del http
    with Client(broker.binary_url) as client, KafkaPeer(broker) as peer:
        code = only_partition(peer.call(fetch("orders", offset=offset), 11)).error_code
        assert code == (ErrorCode.NONE if status == 200 else ErrorCode.OFFSET_OUT_OF_RANGE)
        if status == 200:
            assert client.fetch("orders", 0, offset).next_offset == END
        else:
            with pytest.raises(OffsetOutOfRangeError):
                client.fetch("orders", 0, offset)


def test_an_id_without_a_partition_is_at_its_begin(http: httpx.Client) -> None:
    status, kind = answer(http, f"{TOPIC}/records", SSE | {"last-event-id": "1:0"})
    assert (status, kind) == (410, "/problems/offset-gone")


def test_a_topic_made_again_does_not_take_an_id_beyond_its_end(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=broker.http_url) as http:
        http.put("/v1/topics/again", json={"partitions": 2})
        records = [{"value": n, "partition": 0} for n in range(5)]
        http.post("/v1/topics/again/records", json={"records": records})
        http.delete("/v1/topics/again")
        resumed = {**SSE, "last-event-id": "0:4"}
        assert http.get("/v1/topics/again/records", headers=resumed).status_code == 404
        http.put("/v1/topics/again", json={"partitions": 1})
        assert http.get("/v1/topics/again/records", headers=resumed).status_code == 416
        other = {**SSE, "last-event-id": "0:4,1:3"}
        assert http.get("/v1/topics/again/records", headers=other).status_code == 400


def test_a_poll_goes_on_at_the_first_record_that_is_left(http: httpx.Client) -> None:
    offsets = [{"topic": "orders", "partition": 0, "offset": 2}]
    assert http.put("/v1/groups/late/offsets", json={"offsets": offsets}).status_code == 200
    polled = http.post("/v1/groups/late/poll", json={"topics": ["orders"]}).json()
    assert [record["offset"] for record in polled["records"]] == list(range(START, END))
