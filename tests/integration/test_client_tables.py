"""Tables of compacted topics over both transports, for both kinds of client."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from stele import (
    AsyncClient,
    AsyncTable,
    Client,
    DeserializationError,
    InvalidRequestError,
    Producer,
    RecordMetadata,
    RequestTimedOutError,
    SteleClientError,
    Table,
    UnknownTopicError,
)
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import ClosedError
from stele.serializers import json_deserializer, str_deserializer

from app.storage.disk.files import RealFiles
from app.storage.recovery.checkpoint import CLEANER_OFFSETS, read_offsets

from .test_client_calls import InThreads
from .test_compaction import DEADLINE_S, SETTINGS

AnyTable = AsyncTable[Any, Any] | Table[Any, Any]
COMPACT = {"cleanup.policy": "compact"}
_numbers = itertools.count()


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, stele_broker_session: BrokerProcess) -> str:
    broker = stele_broker_session
    return broker.binary_url if request.param == "tcp" else broker.http_url


class OpenedTables:
    """Opens tables of either client; those of the blocking one are used in threads."""

    def __init__(self, client: AsyncClient | Client, stack: AsyncExitStack) -> None:
        self._client = client
        self._stack = stack

    async def __call__(self, topic: str, **options: Any) -> AnyTable:
        if isinstance(self._client, AsyncClient):
            return await self._stack.enter_async_context(self._client.table(topic, **options))
        table = self._client.table(topic, **options)
        self._stack.callback(table.close)
        await asyncio.to_thread(table.start)
        return table


@pytest.fixture(params=["asyncio", "blocking"])
async def client(request: pytest.FixtureRequest, url: str) -> AsyncGenerator[AsyncClient | Client]:
    if request.param == "asyncio":
        async with AsyncClient(url) as opened:
            yield opened
    else:
        with Client(url) as blocking:
            yield blocking


@pytest.fixture
async def open_table(client: AsyncClient | Client) -> AsyncGenerator[OpenedTables]:
    async with AsyncExitStack() as stack:
        yield OpenedTables(client, stack)


@pytest.fixture
async def calls(client: AsyncClient | Client) -> AsyncClient:
    return client if isinstance(client, AsyncClient) else cast("AsyncClient", InThreads(client))


@pytest.fixture
async def topic(calls: AsyncClient) -> str:
    """A compacted topic of three partitions that nobody else uses, because the broker is shared."""
    name = f"client-tables-{next(_numbers)}"
    await calls.create_topic(name, partitions=3, configs=COMPACT)
    return name


async def wait_until(table: AnyTable, *target: Any, timeout_s: float | None = 60) -> None:
    if isinstance(table, AsyncTable):
        await table.wait_until(*target, timeout_s=timeout_s)
    else:
        await asyncio.to_thread(lambda: table.wait_until(*target, timeout_s=timeout_s))


async def test_a_look_up_returns_the_newest_record_of_a_key(calls: AsyncClient, topic: str) -> None:
    for key in (b"\x00\xff/..", "ада", "", "."):
        assert await calls.lookup(topic, key) is None
        await calls.produce(topic, b"old", key=key)
        receipt = await calls.produce(topic, b"\xffnew", key=key, headers={"h": None}, timestamp=1_000)
        # Without an order between partitions, the newest timestamp counts; within one, the offset.
        record = await calls.lookup(topic, key, partition=receipt.partition)
        assert record is not None
        assert (record.topic, record.partition, record.offset) == (topic, receipt.partition, receipt.offset)
        assert (record.value, record.headers, record.timestamp) == (b"\xffnew", (("h", None),), 1_000)
        assert await calls.lookup(topic, key, partition=(receipt.partition + 1) % 3) is None
        assert await calls.lookup(topic, key) == record
        await calls.produce(topic, None, key=key)
        assert await calls.lookup(topic, key) is None


async def test_errors_of_look_ups_and_tables_name_the_cause(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.create_topic(f"{topic}-plain")
    with pytest.raises(InvalidRequestError, match=r"not compacted.*cleanup\.policy=compact"):
        await calls.lookup(f"{topic}-plain", "k")
    with pytest.raises(InvalidRequestError, match="not compacted"):
        await open_table(f"{topic}-plain")
    with pytest.raises(UnknownTopicError):
        await calls.lookup(f"{topic}-none", "k")
    with pytest.raises(UnknownTopicError):
        await open_table(f"{topic}-none")
    with pytest.raises(UnknownTopicError, match="partition"):
        await calls.lookup(topic, "k", partition=3)


async def test_a_table_has_the_rows_and_follows_them(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, '{"city": "Paris"}', key="ada")
    await calls.produce(topic, '{"city": "London"}', key="ada")
    await calls.produce(topic, '{"city": "Oslo"}', key="bob")
    await calls.produce(topic, None, key="bob")
    users = await open_table(topic, key=str_deserializer, value=json_deserializer)
    assert dict(users) == {"ada": {"city": "London"}}
    assert users["ada"] == {"city": "London"}
    assert "bob" not in users
    assert users.get("bob") is None
    with pytest.raises(KeyError):
        users["bob"]
    record = users.record("ada")
    assert record is not None
    assert record.offset == 1

    receipts = [
        await calls.produce(topic, None, key="ada"),
        await calls.produce(topic, "1", key="bob"),
        await calls.produce(topic, "2", key="eve"),
    ]
    await wait_until(users, receipts)
    assert (len(users), sorted(users), users.snapshot()) == (2, ["bob", "eve"], {"bob": 1, "eve": 2})
    assert sorted(users.values()) == [1, 2]
    for receipt in receipts:
        assert users.positions[receipt.partition] > receipt.offset


async def test_a_table_without_following_changes_in_refresh(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, b"1", key="a", partition=2)
    table = await open_table(topic, follow=False, partitions=[1, 2])
    receipt = await calls.produce(topic, b"2", key="a", partition=2)
    await calls.produce(topic, b"3", key="b", partition=0)
    assert dict(table) == {b"a": b"1"}
    await wait_until(table)
    assert dict(table) == {b"a": b"2"}
    await calls.produce(topic, b"4", key="a", partition=2)
    if isinstance(table, AsyncTable):
        await table.refresh()
    else:
        await asyncio.to_thread(table.refresh)
    assert dict(table) == {b"a": b"4"}
    with pytest.raises(RequestTimedOutError):
        await wait_until(table, {2: receipt.offset + 9}, timeout_s=0.05)
    with pytest.raises(ValueError, match="partition 0 is not in the table"):
        await wait_until(table, {0: 1})


async def test_of_several_partitions_with_a_key_the_newest_timestamp_counts(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, b"old", key="k", partition=2, timestamp=1_000)
    await calls.produce(topic, b"new", key="k", partition=0, timestamp=2_000)
    table = await open_table(topic)
    record = await calls.lookup(topic, "k")
    assert record is not None
    assert (dict(table), record.value) == ({b"k": b"new"}, b"new")
    await wait_until(table, await calls.produce(topic, b"older", key="k", partition=1, timestamp=1_500))
    assert dict(table) == {b"k": b"new"}
    await wait_until(table, await calls.produce(topic, None, key="k", partition=1, timestamp=2_500))
    assert dict(table) == {}


async def test_changes_are_iterated_from_now_on_until_the_table_is_closed(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, b"0", key="a", partition=0)
    table = await open_table(topic, key=str_deserializer, value=str_deserializer)
    changes: Any = table.changes()
    await calls.produce(topic, b"1", key="a", partition=0)
    await calls.produce(topic, None, key="b", partition=0)
    receipt = await calls.produce(topic, None, key="a", partition=0)
    await wait_until(table, receipt)
    # The tombstone of a key that the table does not have is no change.
    seen: list[tuple[str, str | None]] = []

    async def next_change() -> tuple[str, str | None]:
        if isinstance(table, AsyncTable):
            change = await anext(changes)
        else:
            change = await asyncio.to_thread(next, changes)
        return change.key, change.value

    while not seen or seen[-1][1] is not None:
        seen.append(await next_change())
    assert seen in ([("a", "1"), ("a", None)], [("a", None)])
    await calls.produce(topic, b"2", key="c", partition=0)
    assert await next_change() == ("c", "2")
    if isinstance(table, AsyncTable):
        await table.close()
        assert [change async for change in changes] == []
    else:
        table.close()
        assert list(changes) == []
    with pytest.raises(ClosedError):
        table["c"]


async def test_a_poll_for_changes_ends_in_time_and_its_block_ends_the_changes(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    table = await open_table(topic, key=str_deserializer)
    changes: Any = table.changes()

    async def poll(timeout_s: float) -> Any:
        if isinstance(table, AsyncTable):
            return await changes.poll(timeout_s)
        return await asyncio.to_thread(changes.poll, timeout_s)

    assert await poll(0) is None
    await calls.produce(topic, b"1", key="a")
    assert (await poll(60)).key == "a"
    if isinstance(table, AsyncTable):
        async with changes:
            pass
    else:
        with changes:
            pass
    await wait_until(table, await calls.produce(topic, b"2", key="a"))
    assert await poll(60) is None


async def test_a_wait_for_a_table_that_was_not_started_loads_it(
    client: AsyncClient | Client, calls: AsyncClient, topic: str
) -> None:
    receipt = await calls.produce(topic, b"1", key="a")
    table = client.table(topic, key=str_deserializer)
    try:
        await wait_until(table, receipt)
        assert dict(table) == {"a": b"1"}
    finally:
        if isinstance(table, AsyncTable):
            await table.close()
        else:
            table.close()


async def test_a_value_that_cannot_be_deserialized_concerns_its_key_alone(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, b"{", key="bad", partition=0)
    await calls.produce(topic, b"{}", key="good", partition=0)
    table = await open_table(topic, value=json_deserializer)
    assert (len(table), b"bad" in table, table[b"good"]) == (2, True, {})
    for _ in range(2):
        with pytest.raises(DeserializationError) as raised:
            table[b"bad"]
        assert raised.value.record.value == b"{"
    with pytest.raises(DeserializationError):
        table.items()
    await wait_until(table, await calls.produce(topic, b"[1]", key="bad", partition=0))
    assert table.snapshot() == {b"bad": [1], b"good": {}}


async def test_an_error_of_the_background_is_raised_by_the_next_access(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, b"1", key="a")
    table = await open_table(topic)
    assert table[b"a"] == b"1"
    await calls.delete_topic(topic)
    with pytest.raises(UnknownTopicError):
        await wait_until(table, {0: 1_000})
    for _ in range(2):
        with pytest.raises(UnknownTopicError):
            table[b"a"]


async def test_a_table_does_not_continue_in_another_topic_of_its_name(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    await calls.produce(topic, b"old", key="old", partition=0)
    table = await open_table(topic, follow=False)
    described = await calls.describe_topic(topic)
    await calls.delete_topic(topic)
    await calls.create_topic(topic, partitions=described.partitions, configs=described.configs)
    for _ in range(3):
        await calls.produce(topic, b"new", key="new", partition=0)
    with pytest.raises(UnknownTopicError, match="was deleted"):
        await wait_until(table)
    assert b"new" not in table


async def test_a_key_that_cannot_be_deserialized_ends_the_table(
    calls: AsyncClient, open_table: OpenedTables, topic: str
) -> None:
    table = await open_table(topic, key=str_deserializer)
    receipt = await calls.produce(topic, b"1", key=b"\xff", partition=0)
    with pytest.raises(DeserializationError, match=r"the key of .* offset 0 cannot be deserialized"):
        await wait_until(table, receipt)


class Writers:
    """Two threads that write random rows to two partitions; ``model`` is the table of what was stored."""

    def __init__(self, topic: str, url: str, random_seed: int) -> None:
        self._topic = topic
        self._url = url
        self._seed = random_seed
        self._stored: list[tuple[RecordMetadata, bytes, bytes | None]] = []
        self._lock = threading.Lock()
        self.errors: list[SteleClientError] = []

    def run(self, is_over: Callable[[], bool]) -> None:
        self._seed += 1
        threads = [
            threading.Thread(
                target=self._write, args=(number, random.Random(self._seed * 2 + number), is_over)
            )
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not self.errors

    def _write(self, number: int, rng: random.Random, is_over: Callable[[], bool]) -> None:
        try:
            with Client(self._url) as client, Producer(client, self._topic) as producer:
                while not is_over():
                    sent: list[tuple[Any, bytes, bytes | None]] = []
                    for _ in range(50):
                        # Each writer has keys of its own, and keys of both.
                        key = b"%d-%d" % (rng.choice((number, 2)), rng.randrange(20))
                        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(80))
                        sent.append((producer.send(value, key=key), key, value))
                    rows = [(future.result(DEADLINE_S), key, value) for future, key, value in sent]
                    with self._lock:
                        self._stored += rows
        except SteleClientError as error:
            self.errors.append(error)

    @property
    def receipts(self) -> list[RecordMetadata]:
        return [receipt for receipt, _, _ in self._stored]

    @property
    def model(self) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        for _, key, value in sorted(self._stored, key=lambda row: row[0].offset):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        return table


@pytest.mark.long
async def test_tables_equal_the_model_over_compaction_passes_and_kills(tmp_path: Path) -> None:
    name = "users"
    configs = {
        **COMPACT,
        "segment.bytes": "8192",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
        "delete.retention.ms": "0",
    }
    with run_broker(tmp_path, environment=SETTINGS) as broker, ExitStack() as stack:
        with Client(broker.binary_url) as client:
            client.create_topic(name, partitions=2, configs=configs)
        writers = Writers(name, broker.binary_url, 7)
        blocking: list[Table[bytes, bytes]] = []
        async with AsyncExitStack() as async_stack:
            followers: list[AsyncTable[bytes, bytes]] = []

            def passes() -> int:
                return sum(cleaned_until_of(tmp_path, name, partition) for partition in range(2))

            for url in (broker.binary_url, broker.http_url):
                client = stack.enter_context(Client(url))
                blocking.append(stack.enter_context(client.table(name)))
                async_client = await async_stack.enter_async_context(AsyncClient(url))
                followers.append(await async_stack.enter_async_context(async_client.table(name)))
            for is_killed in (True, False):
                progress = Progress(passes, is_killed=is_killed)
                writing = asyncio.create_task(asyncio.to_thread(writers.run, progress.is_over))
                if is_killed:
                    await asyncio.to_thread(progress.has_passed.wait, DEADLINE_S)
                    await asyncio.to_thread(broker.kill)
                    await asyncio.to_thread(broker.start)
                    progress.restarted()
                await writing
                receipts, model = writers.receipts, writers.model
                for table in blocking:
                    await asyncio.to_thread(table.wait_until, receipts, timeout_s=DEADLINE_S)
                    assert dict(table) == model
                for follower in followers:
                    await follower.wait_until(receipts, timeout_s=DEADLINE_S)
                    assert dict(follower) == model
                # One that begins now loads the same.
                for url in (broker.binary_url, broker.http_url):
                    with Client(url) as client, client.table(name, follow=False) as fresh:
                        assert dict(fresh) == model


class Progress:
    """Ends the writing after a compaction pass; if the broker is killed, after one since its restart."""

    def __init__(self, passes: Callable[[], int], *, is_killed: bool) -> None:
        self._passes = passes
        self._first = passes()
        self._needs_restart = is_killed
        self.has_passed = threading.Event()

    def is_over(self) -> bool:
        """Called by the writers between their batches."""
        if self._passes() != self._first:
            self.has_passed.set()
            return not self._needs_restart
        return False

    def restarted(self) -> None:
        self._first, self._needs_restart = self._passes(), False


def cleaned_until_of(data_dir: Path, topic: str, partition: int) -> int:
    return read_offsets(RealFiles(), data_dir / CLEANER_OFFSETS).get((topic, partition), 0)
