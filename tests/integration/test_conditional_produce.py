"""Appends that depend on the end of the partition: over HTTP, the binary protocol, with the client and its command."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import (
    AsyncClient,
    Client,
    Compression,
    InvalidRequestError,
    NewRecord,
    RecordTooLargeError,
    UnexpectedEndError,
)
from stele.broker_process import BrokerProcess
from stele.testing import run_broker
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

from tests.support.batches import batch_of
from tests.support.binary_peer import Peer
from tests.support.brokers import run_broker_or_cluster
from tests.support.counting import TOPIC, CountingWriter, check_counter
from tests.support.raw_http import RawConnection
from tests.support.waiting import Pauses
from tests.support.warm_processes import run_stele

_numbers = itertools.count()
JSON, NDJSON, OCTETS = "application/json", "application/x-ndjson", "application/octet-stream"
WRITERS, INCREMENTS, KILLS = 6, 30, 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("conditional")) as broker:
        yield broker


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url) as http:
        yield http


@pytest.fixture
def topic() -> str:
    """A name nobody else uses, for the broker is shared."""
    return f"conditional-{next(_numbers)}"


def body_of(kind: str, *values: str) -> bytes:
    records = [{"value": value} for value in values]
    if kind == JSON:
        return json.dumps({"records": records}).encode()
    if kind == NDJSON:
        return b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return values[0].encode()


def post(
    http: httpx.Client,
    topic: str,
    *values: str,
    tag: str | Sequence[str] | None = None,
    kind: str = JSON,
    query: str = "partition=0",
    headers: Mapping[str, str] | None = None,
    content: bytes | Iterator[bytes] | None = None,
) -> httpx.Response:
    tags = [tag] if isinstance(tag, str) else tag or []
    return http.post(
        f"/v1/topics/{topic}/records?{query}",
        content=body_of(kind, *values) if content is None else content,
        headers=[
            ("Content-Type", kind),
            *(("If-Match", one) for one in tags),
            *(headers or {}).items(),
        ],
    )


def values(http: httpx.Client, topic: str, partition: int = 0) -> list[str]:
    page = http.get(f"/v1/topics/{topic}/partitions/{partition}/records").json()
    return [record["value"] for record in page["records"]]


def refused(answer: httpx.Response, end: int, expected: int | str) -> dict[str, Any]:
    """Check that nothing was stored because the partition ends at ``end``."""
    assert answer.status_code == 412, answer.text
    assert answer.headers["ETag"] == f'"{end}"'
    problem = answer.json()
    assert (problem["type"], problem["kafka_code"], problem["retriable"]) == (
        "/problems/unexpected-end",
        ErrorCode.UNEXPECTED_END,
        False,
    )
    assert (problem["log_end_offset"], problem["expected"]) == (end, expected)
    return problem


# ── HTTP ──


@pytest.mark.parametrize("kind", [JSON, NDJSON, OCTETS])
def test_records_are_stored_if_the_partition_ends_there(http: httpx.Client, topic: str, kind: str) -> None:
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
    first = post(http, topic, "a", tag='"0"', kind=kind)
    assert first.status_code == 200, first.text
    # The fast path takes it, if it has no condition.
    assert post(http, topic, "b", query="", kind=kind).status_code == 200
    refused(post(http, topic, "x", tag='"0"', query="", kind=kind), 2, 0)
    for wrong in (0, 1, 3):
        problem = refused(post(http, topic, "x", tag=f'"{wrong}"', kind=kind), 2, wrong)
        assert f"ends at offset 2, not at {wrong}" in problem["detail"]
        assert (problem["topic"], problem["partition"]) == (topic, 0)
    assert post(http, topic, "c", tag='"2"', kind=kind).json()
    assert values(http, topic) == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [JSON, NDJSON])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_many_records_are_stored_as_one(http: httpx.Client, topic: str, kind: str, acks: str) -> None:
    many = [str(number) for number in range(1000)]
    query = f"partition=0&acks={acks}"
    assert post(http, topic, *many, tag='"0"', kind=kind, query=query).status_code == 200
    problem = refused(post(http, topic, *many, tag='"999"', kind=kind, query=query), 1000, 999)
    assert [error["index"] for error in problem["errors"]] == list(range(1000))
    assert post(http, topic, *many, tag='"1000"', kind=kind, query=query).status_code == 200
    state = http.get(f"/v1/topics/{topic}").json()["partitions"]
    assert [part["high_watermark"] for part in state if part["partition"] == 0] == [2000]


def test_lines_that_come_in_parts_are_appended_together_at_their_end(http: httpx.Client, topic: str) -> None:
    def parts(tag: str) -> Iterator[bytes]:
        yield b'{"value": "first"}\n{"val'
        # Meanwhile the end moves, also for the request that was right when it began.
        assert post(http, topic, "between", query="").status_code == 200
        yield b'ue": "second"}\n'

    for at, tag in enumerate(('"0"', '"1"')):
        refused(post(http, topic, tag=tag, kind=NDJSON, content=parts(tag)), at + 1, at)
    assert post(http, topic, tag='"3"', kind=NDJSON, content=parts("")).status_code == 200
    assert values(http, topic) == ["between"] * 3 + ["first", "second"]


@pytest.mark.parametrize(
    ("tag", "status"),
    [
        (['"0"'], 200),
        (['"0" ,'], 200),
        (['"7", "0"'], 200),
        (['"7" ,W/"1",, "0"'], 200),
        (['"7"', '"0"'], 200),
        (['"7", "8"'], 412),
        # A strong comparison: RFC 9110, 8.8.3.2.
        (['W/"0"'], 412),
        (['W/"0", "1"'], 412),
        # Tags of something else.
        (['"00"'], 412),
        (['"-0"'], 412),
        (['"None"'], 412),
        (['"abc"'], 412),
        (['""'], 412),
        (['"99999999999999999999"'], 412),
        (["0"], 400),
        ([""], 400),
        (['"0'], 400),
        (['w/"0"'], 400),
        (['*, "0"'], 400),
        (['"0" 1'], 400),
    ],
)
def test_the_tags_of_a_condition_are_those_of_rfc_9110(
    http: httpx.Client, topic: str, tag: list[str], status: int
) -> None:
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
    answer = post(http, topic, "a", tag=tag)
    assert answer.status_code == status, answer.text
    assert values(http, topic) == (["a"] if status == 200 else [])
    if status == 412:
        assert answer.headers["ETag"] == '"0"'
        assert answer.json()["type"] == "/problems/unexpected-end"
    if status == 400:
        assert "in quotes" in answer.json()["detail"]


def test_a_star_asks_for_a_topic_that_exists(http: httpx.Client, topic: str) -> None:
    answer = post(http, topic, "a", tag="*", query="")
    assert (answer.status_code, "ETag" in answer.headers) == (412, False)
    assert "create it first" in answer.json()["detail"]
    assert http.get(f"/v1/topics/{topic}").status_code == 404
    # Nobody has written to it, so it ends at 0.
    assert post(http, topic, "a", tag='"0"').status_code == 200
    assert post(http, topic, "b", tag="*", query="").status_code == 200


@pytest.mark.parametrize("kind", [JSON, NDJSON, OCTETS])
def test_a_condition_is_that_of_one_partition(http: httpx.Client, topic: str, kind: str) -> None:
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 2}).status_code == 201
    answer = post(http, topic, "a", tag='"0"', kind=kind, query="")
    assert (answer.status_code, answer.json()["detail"]) == (
        400,
        "a produce with If-Match or Producer-Id goes to one partition; add ?partition=N",
    )
    assert post(http, topic, "a", tag='"0"', kind=kind, query="partition=2").status_code == 404
    answer = post(http, topic, "a", tag='"0"', kind=kind, query="partition=0&acks=0")
    assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request")
    assert "acks 1 or all" in answer.json()["detail"]
    assert post(http, topic, "a", tag='"0"', kind=kind, query="partition=1").status_code == 200
    assert (values(http, topic, 0), values(http, topic, 1)) == ([], ["a"])


@pytest.mark.parametrize("kind", [JSON, NDJSON])
def test_a_record_of_another_partition_and_one_that_is_refused_refuse_all(
    http: httpx.Client, topic: str, kind: str
) -> None:
    configs = {"message.timestamp.after.max.ms": "1000", "max.message.bytes": "5000"}
    created = http.put(f"/v1/topics/{topic}", json={"partitions": 2, "configs": configs})
    assert created.status_code == 201, created.text
    for wrong in (
        {"value": "x", "partition": 1},
        {"value": "x", "timestamp": 1 << 50},
        {"value": "x" * 6000},
    ):
        records = [{"value": "a"}, wrong]
        text = (
            json.dumps({"records": records})
            if kind == JSON
            else "".join(json.dumps(record) + "\n" for record in records)
        )
        answer = post(http, topic, tag='"0"', kind=kind, content=text.encode())
        assert answer.status_code in (400, 413), answer.text
    # Together they are too large for a batch, which is refused as a whole.
    answer = post(http, topic, "x" * 3000, "y" * 3000, tag='"0"', kind=kind)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["type"] == "/problems/too-large"
    assert values(http, topic) == []


def test_a_retry_of_a_numbered_batch_is_answered_with_its_offset(http: httpx.Client, topic: str) -> None:
    identity = {
        f"Producer-{name}": str(value)
        for name, value in zip(("Id", "Epoch"), http.post("/v1/producers").json().values(), strict=True)
    }
    first = {**identity, "Producer-Sequence": "0"}
    again = {**identity, "Producer-Sequence": "1"}
    assert post(http, topic, "a", tag='"0"', headers=first).json()["records"][0]["offset"] == 0
    assert post(http, topic, "of another").status_code == 200
    assert post(http, topic, "a", tag='"0"', headers=first).json()["records"][0]["offset"] == 0
    refused(post(http, topic, "b", tag='"1"', headers=again), 2, 1)
    # The sequence of a refused batch is free; the next one follows a repeat.
    assert post(http, topic, "c", tag='"2"', headers=again).json()["records"][0]["offset"] == 2
    assert values(http, topic) == ["a", "of another", "c"]


def test_batches_that_wait_for_a_thread_are_compared_when_it_is_their_turn(
    http: httpx.Client, topic: str
) -> None:
    configs = {"compression.type": "zstd", "compression.zstd.level": "19"}
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1, "configs": configs}).status_code == 201
    large = os.urandom(60_000).hex()
    with ThreadPoolExecutor(8) as threads:
        begun = [threads.submit(post, http, topic, large, tag='"0"') for _ in range(8)]
        answers = [one.result() for one in begun]
    assert sorted(answer.status_code for answer in answers) == [200, *[412] * 7]
    for answer in answers:
        if answer.status_code == 412:
            refused(answer, 1, 0)
    assert post(http, topic, "next", tag='"1"').status_code == 200


def test_the_records_and_the_marker_of_a_transaction_count(http: httpx.Client, topic: str) -> None:
    records = {"records": [{"topic": topic, "partition": 0, "value": "a"}]}
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
    answer = http.post("/v1/transactions", json=records)
    assert answer.status_code == 200, answer.text
    refused(post(http, topic, "x", tag='"1"'), 2, 1)
    # A reader that has read everything knows the end.
    page = http.get(f"/v1/topics/{topic}/partitions/0/records").json()
    assert page["next_offset"] == 2
    assert post(http, topic, "b", tag='"2"').status_code == 200


def test_a_client_that_leaves_within_its_lines_stores_none(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 1}).status_code == 201
    with RawConnection(broker.http_url) as connection:
        connection.send(
            f'POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: x\r\nIf-Match: "0"\r\n'
            f"Content-Type: {NDJSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
            '12\r\n{"value": "left"}\n\r\n'.encode()
        )
    assert post(http, topic, "a", tag='"0"').status_code == 200
    assert values(http, topic) == ["a"]


# ── the binary protocol ──


def conditional(topic: str, *values: bytes, end: int, **fields: Any) -> m.ConditionalProduceRequest:
    given: dict[str, Any] = {"partition": 0, "acks": -1, "batches": batch_of(values), **fields}
    return m.ConditionalProduceRequest(topic=topic, expected_end=end, **given)


def test_a_frame_is_answered_with_a_receipt_or_with_the_end(broker: BrokerProcess, topic: str) -> None:
    with Peer(broker) as peer:
        answer = peer.call(conditional(topic, b"a", b"b", end=0))
        assert isinstance(answer, m.ConditionalProduceResponse)
        assert (answer.base_offset, answer.last_offset, answer.code) == (0, 1, ErrorCode.NONE)
        assert (answer.message, answer.log_end_offset) == ("", -1)
        assert answer.durability >= m.Durability.SYNCED
        answer = peer.call(conditional(topic, b"x", end=1))
        assert isinstance(answer, m.ConditionalProduceResponse)
        assert (answer.code, answer.log_end_offset) == (ErrorCode.UNEXPECTED_END, 2)
        assert (answer.partition, answer.base_offset, answer.last_offset) == (0, -1, -1)
        assert "ends at offset 2, not at 1" in answer.message
        assert answer.durability is m.Durability.NONE


def test_frames_in_a_pipeline_are_compared_in_their_order(broker: BrokerProcess, topic: str) -> None:
    with Peer(broker) as peer:
        sent = [
            conditional(topic, b"%d" % number, end=end, acks=acks)
            for number, (end, acks) in enumerate([(0, 1), (0, -1), (1, -1), (3, 1), (2, 1), (2, -1)])
        ]
        peer.send(*(request.encode() for request in sent))
        answers = [peer.frame() for _ in sent]
    ends: list[tuple[int, int]] = []
    for frame in answers:
        answer = m.decode_response(frame[4], frame[5:])
        assert isinstance(answer, m.ConditionalProduceResponse)
        ends.append((answer.base_offset, answer.log_end_offset))
    assert ends == [(0, -1), (-1, 1), (1, -1), (-1, 2), (2, -1), (-1, 3)]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"partition": -1}, "needs a partition"),
        ({"acks": 0}, "needs acks 1 or all"),
        ({"end": -1}, "0 or more"),
        ({"batches": batch_of([b"a"]) + batch_of([b"b"])}, "one record batch, not 2"),
    ],
)
def test_a_frame_with_a_wrong_condition_is_refused(
    broker: BrokerProcess, topic: str, fields: dict[str, Any], reason: str
) -> None:
    with Peer(broker) as peer:
        answer = peer.call(conditional(topic, b"a", **{"end": 0, **fields}))
        assert isinstance(answer, m.ErrorResponse)
        assert answer.code is ErrorCode.INVALID_REQUEST
        assert reason in answer.message


# ── the client ──


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    return broker.binary_url if request.param == "tcp" else broker.http_url


def test_a_call_raises_the_actual_end(url: str, topic: str) -> None:
    with Client(url) as client:
        assert client.produce(topic, b"a", partition=0, expected_end=0).offset == 0
        with pytest.raises(UnexpectedEndError, match="ends at offset 1, not at 0") as error:
            client.produce(topic, b"x", partition=0, expected_end=0)
        assert (error.value.log_end_offset, error.value.code) == (1, ErrorCode.UNEXPECTED_END)
        assert not error.value.retriable
        assert not error.value.is_outcome_unknown
        assert client.produce(topic, b"b", key="k", partition=0, expected_end=1, acks=1).offset == 1
        records = [NewRecord(value, partition=0) for value in (b"c", b"d")]
        with pytest.raises(UnexpectedEndError) as error:
            client.produce_many(topic, records, expected_end=1)
        assert error.value.log_end_offset == 2
        receipts = client.produce_many(
            topic,
            records,
            expected_end=2,
            compression=Compression.ZSTD if url.startswith("stele") else Compression.NONE,
        )
        assert [receipt.offset for receipt in receipts] == [2, 3]
        fetched = client.fetch(topic)
        assert [record.value for record in fetched.records] == [b"a", b"b", b"c", b"d"]
        assert fetched.next_offset == client.list_offset(topic, isolation="read_uncommitted") == 4


def test_calls_of_tasks_at_once_have_one_success(url: str, topic: str) -> None:
    async def run() -> list[int]:
        async with AsyncClient(url) as client:
            outcomes = await asyncio.gather(
                *(client.produce(topic, b"%d" % n, partition=0, expected_end=0) for n in range(20)),
                return_exceptions=True,
            )
        errors = [one for one in outcomes if isinstance(one, UnexpectedEndError)]
        assert [error.log_end_offset for error in errors] == [1] * 19
        return [one.offset for one in outcomes if not isinstance(one, BaseException)]

    assert asyncio.run(run()) == [0]


def test_a_call_names_one_partition_and_fits_into_a_batch(url: str, topic: str) -> None:
    with Client(url) as client:
        client.create_topic(topic, partitions=2)
        for records in (
            [NewRecord(b"a")],
            [NewRecord(b"a", key=b"k")],
            [NewRecord(b"a", partition=0), NewRecord(b"b", partition=1)],
            [NewRecord(b"a", partition=0), NewRecord(b"b")],
        ):
            with pytest.raises(ValueError, match="name the same partition"):
                client.produce_many(topic, records, expected_end=0)
        with pytest.raises(ValueError, match="name the same partition"):
            client.produce(topic, b"a", expected_end=0)
        with pytest.raises(InvalidRequestError):
            client.produce(topic, b"a", partition=0, expected_end=0, acks=0)
        with pytest.raises(RecordTooLargeError):
            client.produce_many(topic, [NewRecord(b"x" * 700_000, partition=0)] * 2, expected_end=0)
        assert client.produce_many(topic, [], expected_end=0) == []
        assert client.list_offset(topic) == 0


def test_the_command_writes_all_lines_or_none(url: str, topic: str) -> None:
    environment = {**os.environ, "STELE_URL": url}

    def produce(lines: bytes, *options: str) -> tuple[int, str]:
        done = run_stele("produce", topic, *options, stdin=lines, env=environment)
        return done.returncode, done.stderr.decode()

    assert produce(b"a\nb\n", "--partition", "0", "--if-end", "0") == (
        0,
        "2 records on disk from offset 0 on\n",
    )
    code, text = produce(b"x\n", "--partition", "0", "--if-end", "1")
    assert (code, text.startswith(f"Error: {topic}-0 ends at offset 2, not at 1")) == (1, True)
    code, text = produce(b"x\n", "--if-end", "2")
    assert (code, "give --partition" in text) == (2, True)
    with Client(url) as client:
        assert [record.value for record in client.fetch(topic).records] == [b"a", b"b"]


# ── many writers ──


def test_a_counter_built_on_it_is_linear(broker: BrokerProcess) -> None:
    writers = [
        CountingWriter(number, lambda number=number: broker.http_url if number % 2 else broker.binary_url)
        for number in range(WRITERS)
    ]
    with Client(broker.binary_url) as client:
        client.create_topic(TOPIC, partitions=1)
        with ThreadPoolExecutor(WRITERS) as threads:
            for running in [threads.submit(writer.run, INCREMENTS) for writer in writers]:
                running.result()
        check_counter(client, writers, INCREMENTS)


@pytest.mark.one_broker
@pytest.mark.parametrize("url_of", ["binary_url", "http_url"])
def test_the_counter_counts_each_increment_once_when_the_broker_is_killed(
    tmp_path: Path, url_of: str
) -> None:
    with run_broker(tmp_path) as broker:
        with Client(broker.binary_url) as client:
            client.create_topic(TOPIC, partitions=1)
        writers = [CountingWriter(number, lambda: getattr(broker, url_of)) for number in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as threads:
            running = [threads.submit(writer.run, INCREMENTS) for writer in writers]
            for kill in range(1, KILLS + 1):
                pauses = Pauses()
                while sum(len(writer.offsets) for writer in writers) < kill * WRITERS * INCREMENTS // (
                    KILLS + 1
                ):
                    assert not any(one.done() and one.exception() for one in running)
                    pauses.pause()
                broker.kill()
                broker.start()
            for one in running:
                one.result()
        with Client(broker.binary_url) as client:
            check_counter(client, writers, INCREMENTS)
