"""Clients, readers and writers in the child of a fork: gunicorn ``--preload``, multiprocessing."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from stele import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    Client,
    Consumer,
    LeaseLostError,
    Producer,
    TransactionError,
)
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import ClosedError
from stele.serializers import str_deserializer
from stele.shared import close_shared, shared_producer

# How long a child may take on a busy machine before it counts as hanging.
CHILD_S = 60.0


class Child:
    """A child of a fork that calls a function; ``result`` returns what that returns, or raises."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._reading, writing = os.pipe()
        with warnings.catch_warnings():
            # Newer Pythons warn of forks of a process with threads, which are the point here.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid:
            os.close(writing)
            return
        code = 1
        try:
            try:
                outcome: tuple[Any, BaseException | None] = (function(), None)
            except BaseException as error:  # noqa: BLE001 - the parent raises it
                outcome = (None, error)
            os.write(writing, pickle.dumps(outcome))
            code = 0
        finally:
            os._exit(code)

    def result(self) -> Any:
        try:
            readable, _, _ = select.select([self._reading], [], [], CHILD_S)
            if not readable:
                os.kill(self._pid, signal.SIGKILL)
            data = os.read(self._reading, 65536)
        finally:
            os.waitpid(self._pid, 0)
            os.close(self._reading)
        assert data, "the child hung, or died"
        value, error = pickle.loads(data)
        if error is not None:
            raise error
        return value


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker(data_dir=tmp_path_factory.mktemp("forks")) as running:
        yield running


@pytest.fixture(params=["tcp", "http"])
def url(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    return broker.binary_url if request.param == "tcp" else broker.http_url


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"t-{uuid.uuid4().hex}"
    with Client(broker.binary_url) as client:
        client.create_topic(name, partitions=1)
    return name


def values(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    with Client(broker.binary_url) as client:
        return [record.value for record in client.fetch(topic, max_records=10_000).records]


def test_parent_and_child_get_their_own_answers(broker: BrokerProcess, url: str, topic: str) -> None:
    def produce(client: Client, who: str) -> list[tuple[str, int]]:
        return [(f"{who}-{n}", client.produce(topic, f"{who}-{n}").offset) for n in range(200)]

    with Client(url) as client:
        client.ping()
        child = Child(lambda: produce(client, "child"))
        receipts = produce(client, "parent")
        of_child: list[tuple[str, int]] = child.result()
        receipts += of_child
    stored = values(broker, topic)
    assert len(stored) == 400
    assert all(stored[offset] == value.encode() for value, offset in receipts)


def test_the_end_of_a_child_closes_nothing_of_its_parent(broker: BrokerProcess, url: str, topic: str) -> None:
    with (
        httpx.Client(base_url=broker.http_url) as metrics,
        Client(url) as client,
        Producer(client, topic) as producer,
    ):
        producer.send_and_wait(b"before")

        def opened() -> list[str]:
            lines = metrics.get("/metrics").text.splitlines()
            return [line for line in lines if line.startswith("stele_listener_connections_opened_total")]

        before = opened()

        def leave_all_blocks() -> None:
            producer.close()
            client.close()

        Child(leave_all_blocks).result()
        producer.send_and_wait(b"after")
        # The connections are those of before.
        assert opened() == before
    assert values(broker, topic) == [b"before", b"after"]


KEEPS_AN_ERROR = """
import sys
from stele import Client
client = Client(sys.argv[1])
try:
    client.create_topic(sys.argv[2])
except Exception as error:
    # Its traceback refers to the client.
    kept = error
assert kept
"""


def test_a_program_that_ends_with_its_client_reports_nothing(url: str, topic: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KEEPS_AN_ERROR, url, topic], capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""


def test_an_asyncio_client_works_in_a_new_loop_of_the_child(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    async def parent() -> tuple[int, int, list[bytes | None]]:
        async with AsyncClient(url) as client:
            await client.ping()
            first = await client.produce(topic, b"parent")
            async with asyncio.timeout(CHILD_S), AsyncProducer(client, topic) as producer:
                await producer.send_and_wait(b"parent")
                consumer = AsyncConsumer(client, topic)
                await anext(consumer)
                # A fetch, a long poll and an unsent record are under way at the fork.
                pending = await producer.send(b"pending")

                async def in_child() -> int:
                    offset = (await producer.send_and_wait(b"child")).offset
                    assert (await client.fetch(topic, offset=offset)).records[0].value == b"child"
                    seen = [(await anext(consumer)).value for _ in range(offset)]
                    assert seen[-1] == b"child"
                    return offset

                child = Child(lambda: asyncio.run(in_child()))
                await pending
                second = await client.produce(topic, b"parent")
                offset = await asyncio.to_thread(child.result)
                await consumer.close()
                assert second.offset > first.offset
        return offset, second.offset, values(broker, topic)

    offset, second, stored = asyncio.run(parent())
    assert stored[offset] == b"child"
    assert stored[second] == b"parent"
    assert sorted(str(value) for value in stored) == sorted(
        str(value) for value in [b"parent"] * 3 + [b"pending", b"child"]
    )


def test_shared_producers_are_those_of_the_process(broker: BrokerProcess, url: str, topic: str) -> None:
    async def send(value: bytes) -> int:
        producer = shared_producer("owner", lambda client: AsyncProducer(client, topic), url)
        receipt = await producer.send_and_wait(value)
        await close_shared()
        return receipt.offset

    asyncio.run(send(b"parent"))
    assert Child(lambda: asyncio.run(send(b"child"))).result() == 1
    assert values(broker, topic) == [b"parent", b"child"]


def test_records_that_wait_at_the_fork_are_stored_once_and_by_the_parent(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    with Client(url) as client, Producer(client, topic, linger_ms=2000) as producer:
        waiting = [producer.send(f"parent-{n}") for n in range(50)]

        def in_child() -> str:
            with pytest.raises(ClosedError, match="the parent process, which stores"):
                waiting[0].result(CHILD_S)
            producer.send_and_wait(b"child")
            producer.flush()
            producer.close()
            return "done"

        child = Child(in_child)
        producer.flush()
        assert child.result() == "done"
        assert all(receipt.done() for receipt in waiting)
    stored = values(broker, topic)
    assert sorted(str(v) for v in stored) == sorted(
        [str(b"child"), *(str(f"parent-{n}".encode()) for n in range(50))]
    )


def test_a_lock_that_a_thread_of_the_parent_holds_is_free_in_the_child(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    is_held, may_go = threading.Event(), threading.Event()

    def slow(key: bytes | None, partitions: int, size: int) -> int:
        # The producer calls it with its lock.
        if threading.current_thread().name == "holder":
            is_held.set()
            may_go.wait(CHILD_S)
        return 0

    with Client(url) as client, Producer(client, topic, partitioner=slow) as producer:
        thread = threading.Thread(target=producer.send, args=(b"parent",), name="holder")
        thread.start()
        assert is_held.wait(CHILD_S)
        assert Child(lambda: producer.send_and_wait(b"child").topic).result() == topic
        may_go.set()
        thread.join()
    assert sorted(str(v) for v in values(broker, topic)) == [str(b"child"), str(b"parent")]


def test_a_call_that_waits_for_the_broker_at_the_fork_blocks_nothing_in_the_child(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with run_broker(data_dir=tmp_path) as broker, Client(broker.binary_url) as client:
        client.create_topic("t")
        os.kill(broker.pid, signal.SIGSTOP)
        # Other threads that look the topic up wait for its answer, too.
        thread = threading.Thread(target=client.partition_count, args=("t",))
        thread.start()
        while not client._lookups._calls:  # pyright: ignore[reportPrivateUsage]
            time.sleep(0.01)
        child = Child(lambda: client.partition_count("t"))
        os.kill(broker.pid, signal.SIGCONT)
        assert child.result() == client.partition_count("t")
        thread.join()


def test_a_consumer_continues_from_its_position_in_both_processes(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    with Client(url) as client:
        for n in range(100):
            client.produce(topic, f"{n}")
        consumer = Consumer(client, topic, follow=False)
        first = [next(consumer).value for _ in range(10)]

        def rest() -> list[bytes | None]:
            return [record.value for record in consumer]

        child = Child(rest)
        assert first + rest() == [str(n).encode() for n in range(100)]
        assert first + child.result() == [str(n).encode() for n in range(100)]


def test_a_table_follows_its_changes_in_the_child_too(broker: BrokerProcess, url: str) -> None:
    name = f"t-{uuid.uuid4().hex}"
    with Client(url) as client:
        client.create_topic(name, partitions=2, configs={"cleanup.policy": "compact"})
        client.produce(name, b"old", key="a")
        client.produce(name, b"gone", key="b")
        with client.table(name, key=str_deserializer, value=str_deserializer) as table:
            changes = table.changes()
            assert dict(table) == {"a": "old", "b": "gone"}

            def in_child() -> tuple[dict[str, str], list[str]]:
                client.produce(name, b"new", key="a")
                client.produce(name, None, key="b")
                # Waits for what follows the changes.
                table.wait_until(timeout_s=CHILD_S)
                found = dict(table)
                seen = [change.key for _ in range(2) if (change := changes.poll(CHILD_S)) is not None]
                table.close()
                return found, sorted(seen)

            assert Child(in_child).result() == ({"a": "new"}, ["a", "b"])
            table.wait_until(timeout_s=CHILD_S)
            assert dict(table) == {"a": "new"}


def test_a_block_of_a_batch_belongs_to_the_process_that_entered_it(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.http_url) as client:
        client.produce_many(topic, [b"1", b"2"])
        with client.group(f"g-{topic}", topic, wait_s=0.1, max_records=1) as group:
            batch = group.poll()
            assert batch is not None

            def end_block(error: BaseException | None) -> str:
                try:
                    batch.__exit__(None if error is None else type(error), error, None)
                except LeaseLostError as lost:
                    return str(lost)
                return "left to the parent"

            with batch:
                assert "entered before this process was forked" in Child(lambda: end_block(None)).result()
                assert Child(lambda: end_block(SystemExit())).result() == "left to the parent"
                with pytest.raises(LeaseLostError):
                    Child(batch.nack).result()
                # Another reader gets neither: the lease is held, and was neither acknowledged nor given back.
                assert _polled_by_another(broker, f"g-{topic}", topic) == []
            assert _polled_by_another(broker, f"g-{topic}", topic) == [b"2"]
            # A batch that is handed over to a child is the child's.
            handed = _poll(group)
            assert Child(lambda: [r.value for r in _use(handed)]).result() == [b"2"]
            assert group.poll() is None


def _poll(group: Any) -> Any:
    give_up_s = time.monotonic() + CHILD_S
    while (batch := group.poll()) is None:
        assert time.monotonic() < give_up_s
    return batch


def _use(batch: Any) -> list[Any]:
    with batch:
        return list(batch)


def _polled_by_another(broker: BrokerProcess, name: str, topic: str) -> list[bytes | None]:
    with Client(broker.http_url) as client, client.group(name, topic, wait_s=0, max_records=1) as group:
        batch = group.poll()
        if batch is None:
            return []
        read = [record.value for record in batch]
        batch.nack()
        return read


def test_records_of_a_queue_are_handed_out_by_the_process_that_took_them(
    broker: BrokerProcess, topic: str
) -> None:
    with Client(broker.http_url) as client:
        client.produce_many(topic, [b"1", b"2"])
        with client.queue(f"q-{topic}", topic, wait_s=0) as queue:
            records = iter(queue)
            record = next(records)

            def in_child() -> tuple[str, int]:
                said = ""
                try:
                    record.__exit__(None, None, None)
                except LeaseLostError as lost:
                    said = str(lost)
                record.__exit__(SystemExit, SystemExit(), None)
                # What the parent has taken and not handed out yet is not handed out here.
                taken = len(queue.poll())
                queue.close()
                return said, taken

            with record:
                said, taken = Child(in_child).result()
            assert "entered before this process was forked" in said
            assert taken == 0
            with next(records) as second:
                assert second.value == b"2"


def test_a_transaction_is_ended_by_the_process_that_began_it(broker: BrokerProcess, topic: str) -> None:
    with Client(broker.http_url) as client:
        with client.transaction(f"tx-{topic}") as transaction:
            transaction.produce(topic, b"parent")

            def in_child(end: Callable[[], Any]) -> None:
                end()

            with pytest.raises(TransactionError, match="before this process was forked"):
                Child(lambda: in_child(transaction.commit)).result()
            with pytest.raises(TransactionError, match="before this process was forked"):
                Child(lambda: transaction.produce(topic, b"child")).result()
            # The end of a block by an exception aborts nothing of the parent's.
            Child(lambda: transaction.__exit__(SystemExit, SystemExit(), None)).result()
            transaction.produce(topic, b"parent too")
        assert values(broker, topic) == [b"parent", b"parent too"]


@pytest.mark.parametrize("kind", ["batch", "record", "transaction", "table"])
def test_the_asyncio_half_leaves_to_the_parent_what_is_the_parents(
    broker: BrokerProcess, topic: str, kind: str
) -> None:
    async def parent() -> Any:
        async with AsyncClient(broker.http_url) as client:
            await client.produce(topic, b"1")
            match kind:
                case "batch":
                    async with client.group(f"g-{topic}", topic) as group:
                        batch = await group.poll()
                        assert batch is not None
                        async with batch:
                            return await _ended_in_child(batch.__aexit__)
                case "record":
                    async with client.queue(f"q-{topic}", topic) as queue:
                        (record,) = await queue.poll()
                        async with record:
                            return await _ended_in_child(record.__aexit__)
                case "transaction":
                    async with client.transaction(f"tx-{topic}") as transaction:
                        await transaction.produce(topic, b"2")
                        return await _ended_in_child(transaction.__aexit__)
                case _:
                    name = f"{topic}-table"
                    await client.create_topic(name, partitions=1, configs={"cleanup.policy": "compact"})
                    await client.produce(name, b"old", key="a")
                    async with client.table(name) as table:

                        async def in_child() -> bytes:
                            await client.produce(name, b"new", key="a")
                            await table.start()
                            await table.wait_until(timeout_s=CHILD_S)
                            value = table[b"a"]
                            await table.close()
                            return value

                        return (
                            await asyncio.to_thread(Child(lambda: asyncio.run(in_child())).result)
                        ).decode()

    expected = {"table": "new"}.get(kind, "before this process was forked")
    assert expected in asyncio.run(parent())


async def _ended_in_child(leave: Callable[..., Coroutine[Any, Any, Any]]) -> str:
    """Leave a block in a child without and with an exception; return what was raised without."""

    def in_child() -> str:
        asyncio.run(leave(SystemExit, SystemExit(), None))
        try:
            asyncio.run(leave(None, None, None))
        except (LeaseLostError, TransactionError) as error:
            return str(error)
        return "nothing"

    return await asyncio.to_thread(Child(in_child).result)
