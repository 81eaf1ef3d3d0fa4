"""The same history of transactions, read over every protocol but Kafka's."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from stele import Client, Consumer
from stele.calls import Isolation
from stele.operations.raw_fetch import RawFetch
from stele.spark.fetching import Broker as SparkBroker
from stele.spark.offsets import OffsetRange
from stele.spark.options import Connection
from stele.wire import record_batch as rb
from stele.wire.control_record import MarkerType
from stele.wire.isolation_level import IsolationLevel

from app.broker.broker import Broker
from app.broker.reading.fetch import PartitionFetch, end_of, records_from
from app.errors import SteleError
from app.query.tailing import Tail
from app.storage.embedded import EmbeddedEngine
from tests.support.isolation_history import Seen, TransactionHistory
from tests.support.listeners import HOST, Listeners, listeners

TOPIC = "orders"
RECORDS = f"/v1/topics/{TOPIC}/partitions/0/records"
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
# About two small batches.
PIECE_BYTES = 200

Reader = Callable[[Listeners, Isolation], Awaitable[tuple[Seen, int]]]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Listeners]:
    async with listeners(tmp_path, EmbeddedEngine) as served:
        yield served


async def history_of(broker: Broker) -> TransactionHistory:
    """Committed, aborted and interleaved transactions, ranges of markers alone, and an open transaction."""
    await broker.create_topic(TOPIC, partitions=1, configs={"segment.bytes": "4096"})
    history = TransactionHistory(broker, TOPIC)
    await history.write(2)
    await history.write(2, producer=101)
    await history.write(2, producer=102)
    await history.write(1)
    await history.write(1, producer=101)
    await history.abort(101)
    await history.commit(102)
    for producer in range(201, 209):
        await history.write(1, producer=producer)
    # Eight markers in a row, which is more than a piece.
    for producer in range(201, 209):
        await history.end_transaction(producer, MarkerType(producer % 2))
    await history.write(3, producer=101)
    await history.write(2)
    await history.commit(101)
    for _ in range(3):
        await history.write(4, producer=102, size=900)
    await history.abort(102)
    await history.write(2)
    await history.write(1, producer=102)
    await history.abort(102)
    await history.write(2, producer=103)
    await history.write(2, producer=101)
    await history.write(2)
    await history.commit(101)
    return history


def value_of(record: dict[str, Any]) -> bytes:
    if "value_b64" in record:
        return base64.b64decode(record["value_b64"])
    return record["value"].encode()


def decoded(batches: bytes) -> Seen:
    records: Seen = []
    for header in rb.iter_headers(batches):
        assert not header.is_control
        rb.check_batch(batches, header.position)
        records += [(record.offset, record.value or b"") for record in rb.decode_records(batches, header)]
    return records


async def in_pages(
    served: Listeners, isolation: Isolation, accept: str, records_of: Callable[[bytes], Seen]
) -> tuple[Seen, int]:
    offset, records = 0, Seen()
    while True:
        params = {"from": str(offset), "max_bytes": str(PIECE_BYTES), "isolation": isolation}
        answer = await served.http.get(RECORDS, params=params, headers={"Accept": accept})
        assert answer.status_code == 200, answer.text
        records += [record for record in records_of(answer.content) if record[0] >= offset]
        if int(answer.headers["Next-Offset"]) == offset:
            return records, offset
        offset = int(answer.headers["Next-Offset"])


async def http_json(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    def records_of(body: bytes) -> Seen:
        return [(record["offset"], value_of(record)) for record in json.loads(body)["records"]]

    return await in_pages(served, isolation, "application/json", records_of)


async def http_ndjson(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    def records_of(body: bytes) -> Seen:
        return [(record["offset"], value_of(record)) for record in map(json.loads, body.splitlines())]

    return await in_pages(served, isolation, "application/x-ndjson", records_of)


async def http_batches(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    return await in_pages(served, isolation, "application/octet-stream", decoded)


async def http_arrow(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    ipc: Any = pytest.importorskip("pyarrow.ipc")

    def records_of(body: bytes) -> Seen:
        rows = ipc.open_stream(body).read_all().to_pylist()
        return [(row["offset"], row["value"]) for row in rows]

    return await in_pages(served, isolation, "application/vnd.apache.arrow.stream", records_of)


async def http_single_records(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    at = await served.http.get(RECORDS[: -len("records")] + "offsets", params={"isolation": isolation})
    end, records = at.json()["offset"], Seen()
    for offset in range(end):
        answer = await served.http.get(f"{RECORDS}/{offset}", params={"isolation": isolation})
        if answer.status_code == 200:
            records.append((offset, value_of(answer.json())))
        else:
            assert answer.status_code == 404
    return records, end


async def http_export(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    answer = await served.http.get(
        f"/v1/topics/{TOPIC}/search", params={"format": "ndjson", "isolation": isolation}
    )
    lines = [json.loads(line) for line in answer.content.splitlines()]
    return [(line["offset"], value_of(line)) for line in lines], -1


async def http_search(served: Listeners, isolation: Isolation, order: str = "oldest") -> tuple[Seen, int]:
    params = {"isolation": isolation, "order": order, "limit": "3"}
    records, ranges, offsets = Seen(), None, 0
    while ranges != "":
        again = {} if ranges is None else {"ranges": ranges}
        answer = await served.http.get(f"/v1/topics/{TOPIC}/search", params=params | again)
        lines = [json.loads(line) for line in answer.content.splitlines()]
        records += [
            (line["record"]["offset"], value_of(line["record"])) for line in lines if "record" in line
        ]
        end = lines[-1]["end"]
        assert not end["errors"]
        ranges, offsets = end["ranges"], offsets + end["offsets"]
    return sorted(records), offsets


async def http_search_backwards(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    return await http_search(served, isolation, order="newest")


async def live_tail(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    positions = {0: 0}
    tail = Tail(
        served.broker,
        TOPIC,
        positions,
        only=None,
        is_scan=False,
        idle_s=0.05,
        isolation=IsolationLevel[isolation.upper()],
    )
    records: Seen = []
    async with aclosing(tail.records()) as steps:
        async for _, step in steps:
            assert not isinstance(step, SteleError), step
            if step is None:
                break
            records += [(record.offset, record.value or b"") for record in step.records]
    return records, positions[0]


async def broker_fetch(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
    offset, records = 0, Seen()
    while True:
        request = PartitionFetch(
            topic=TOPIC,
            partition=0,
            offset=offset,
            max_bytes=PIECE_BYTES,
            isolation=IsolationLevel[isolation.upper()],
        )
        (read,) = await served.broker.fetch([request], max_bytes=PIECE_BYTES)
        for found in records_from(read, offset):
            records += [(record.offset, record.value or b"") for record in found]
        if end_of(read, offset) == offset:
            return records, offset
        offset = end_of(read, offset)


# ── the client library, in a thread ──


def client_fetch(client: Client, isolation: Isolation) -> tuple[Seen, int]:
    offset, records = 0, Seen()
    while True:
        fetched = client.fetch(TOPIC, 0, offset, max_bytes=PIECE_BYTES, isolation=isolation)
        records += [(record.offset, record.value or b"") for record in fetched.records]
        if fetched.next_offset == offset:
            assert fetched.high_watermark == offset
            return records, offset
        offset = fetched.next_offset


def client_raw_fetch(client: Client, isolation: Isolation) -> tuple[Seen, int]:
    offset, records = 0, Seen()
    while True:
        fetched = client.call(
            RawFetch(
                topic=TOPIC,
                partition=0,
                offset=offset,
                max_bytes=PIECE_BYTES,
                isolation=IsolationLevel[isolation.upper()],
            )
        )
        records += [record for record in decoded(fetched.batches) if record[0] >= offset]
        if not fetched.batches:
            return records, offset
        offset = list(rb.iter_headers(fetched.batches))[-1].next_offset


def client_consumer(client: Client, isolation: Isolation) -> tuple[Seen, int]:
    with Consumer(client, TOPIC, follow=False, max_bytes=PIECE_BYTES, isolation=isolation) as consumer:
        records = [(record.offset, record.value or b"") for record in consumer]
        assert consumer.lag(0) == 0
        return records, consumer.position(0)


def client_simple_consume(client: Client, isolation: Isolation) -> tuple[Seen, int]:
    offset, records = 0, Seen()
    while True:
        found, following = client.simple_consume(TOPIC, offset, 3)
        records += found
        if following == offset:
            return records, offset
        offset = following


def spark_ranges(client: Client, isolation: Isolation) -> tuple[Seen, int]:
    from stele.records import TopicPartition

    records: Seen = []
    with SparkBroker(Connection(url=client.url, isolation=isolation)) as broker:
        end = broker.latest([TopicPartition(TOPIC, 0)])[TopicPartition(TOPIC, 0)]
        # Several ranges, some of which hold only markers.
        for start in range(0, end, 3):
            wanted = OffsetRange(topic=TOPIC, partition=0, start=start, end=min(start + 3, end))
            for batches, offset in broker.read(wanted, fetch_bytes=PIECE_BYTES, fail_on_data_loss=True):
                records += [record for record in decoded(batches) if offset <= record[0] < wanted.end]
    return records, end


def over(scheme: str, read: Callable[[Client, Isolation], tuple[Seen, int]]) -> tuple[str, Reader]:
    async def reader(served: Listeners, isolation: Isolation) -> tuple[Seen, int]:
        def call() -> tuple[Seen, int]:
            with Client(f"{scheme}://{HOST}:{served.binary_port}") as client:
                return read(client, isolation)

        return await asyncio.to_thread(call)

    return read.__name__, reader


READERS: list[tuple[str, Reader]] = [
    *(
        (reader.__name__, reader)
        for reader in (
            http_json,
            http_ndjson,
            http_batches,
            http_arrow,
            http_single_records,
            http_export,
            http_search,
            http_search_backwards,
            live_tail,
            broker_fetch,
        )
    ),
    over("stele", client_fetch),
    over("stele", client_raw_fetch),
    over("stele", client_consumer),
    over("stele", client_simple_consume),
    over("stele", spark_ranges),
]


async def test_every_reader_gets_what_its_isolation_level_shows_and_reaches_its_end(
    served: Listeners,
) -> None:
    history = await history_of(served.broker)
    state = served.broker.log_state(TOPIC, 0)
    assert state.last_stable_offset == history.end(COMMITTED) < state.high_watermark
    isolation: Isolation
    for isolation in ("read_committed", "read_uncommitted"):
        level = IsolationLevel[isolation.upper()]
        for name, reader in READERS:
            if name == "client_simple_consume" and level is UNCOMMITTED:
                continue
            records, end = await reader(served, isolation)
            assert records == history.seen(level), (name, isolation)
            assert end in (history.end(level), -1), (name, isolation)


async def test_the_end_of_the_open_transaction_shows_all_that_waited(served: Listeners) -> None:
    history = await history_of(served.broker)
    positions = {0: history.end(COMMITTED)}
    tail = Tail(served.broker, TOPIC, positions, only=None, is_scan=False, idle_s=0.05)
    async with aclosing(tail.records()) as steps:
        assert await anext(steps) == (-1, None)
        await history.write(1)
        assert await anext(steps) == (-1, None), "what follows an open transaction is not stable"
        await history.commit(103)
        records: list[int] = []
        while positions[0] < served.broker.log_state(TOPIC, 0).high_watermark:
            _, step = await anext(steps)
            assert not isinstance(step, SteleError)
            records += [] if step is None else [record.offset for record in step.records]
    start = min(records)
    assert records == [offset for offset, _ in history.seen(COMMITTED) if offset >= start]


async def test_an_isolation_level_that_does_not_exist_is_refused(served: Listeners) -> None:
    await served.broker.create_topic(TOPIC, partitions=1, configs={})
    for path in (RECORDS, f"/v1/topics/{TOPIC}/records", f"/v1/topics/{TOPIC}/search"):
        answer = await served.http.get(path, params={"isolation": "serializable"})
        assert answer.status_code == 400
        assert "read_committed or read_uncommitted" in answer.json()["detail"]


async def test_keys_and_tables_have_only_committed_records(served: Listeners) -> None:
    await served.broker.create_topic(TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
    history = TransactionHistory(served.broker, TOPIC)
    await history.write(1, key=b"k")
    await history.write(2, producer=101, key=b"k")
    await history.abort(101)
    await history.write(1, producer=102, key=b"k")
    key, table = f"/v1/topics/{TOPIC}/keys/k", f"/v1/topics/{TOPIC}/table"

    async def offsets() -> tuple[int, list[int]]:
        lines = map(json.loads, (await served.http.get(table)).content.splitlines())
        in_table = [line["offset"] for line in lines if "offset" in line]
        return (await served.http.get(key)).json()["offset"], in_table

    assert await offsets() == (0, [0])
    await history.commit(102)
    assert await offsets() == (4, [4])
    for path in (key, table):
        answer = await served.http.get(path, params={"isolation": "read_uncommitted"})
        assert answer.status_code == 400
