"""``client.group``: batches that are acknowledged on exit, redelivery, dead letters, leases that are lost. Over both listeners."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest
from stele import AsyncClient, Client, GroupError, LeaseLostError, NewRecord, TopicPartition
from stele.broker_process import BrokerProcess, run_broker
from stele.grouping.async_group import AsyncBatch
from stele.grouping.core import DEAD_LETTER_ERROR

from tests.support.waiting import Pauses
from tests.support.warm_processes import run_stele

PARTITIONS = 3
# Extended after a third of it; the rest is what a busy machine may take.
LEASE_S = 6.0


@pytest.fixture(params=["http", "stele"])
def url(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    return broker.http_url if request.param == "http" else broker.binary_url


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name = "t" + str(abs(hash(request.node.nodeid)))
    fill(broker, name, 300)
    return name


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    """Values "0" to ``count`` - 1, in turn over the partitions."""
    with Client(broker.binary_url) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        client.produce_many(topic, [NewRecord(str(n), partition=n % PARTITIONS) for n in range(count)])


def lease_ends_at(broker: BrokerProcess, group: str) -> str:
    """When the only lease of the group runs out, as the broker tells it."""
    (lease,) = httpx.get(f"{broker.http_url}/v1/groups/{group}", timeout=60).json()["leases"]
    return str(lease["expires_at"])


def await_extension(broker: BrokerProcess, group: str) -> None:
    """Return when the end of the group's lease has moved."""
    first = lease_ends_at(broker, group)
    pauses = Pauses()
    while lease_ends_at(broker, group) == first:
        pauses.pause()


async def test_many_readers_of_one_group_handle_each_record_once_and_in_order(url: str, topic: str) -> None:
    handled: list[tuple[int, int]] = []

    async def read(client: AsyncClient) -> None:
        async with client.group("all", topic, max_records=7, wait_s=0.2) as group:
            while (batch := await group.poll()) is not None:
                async with batch:
                    for record in batch:
                        handled.append((record.partition, record.offset))
                        await asyncio.sleep(0)

    async with AsyncClient(url) as client:
        await asyncio.gather(*(read(client) for _ in range(4)))
        assert Counter(handled) == {(p, offset): 1 for p in range(PARTITIONS) for offset in range(100)}
        for partition in range(PARTITIONS):
            assert [offset for p, offset in handled if p == partition] == list(range(100))
            assert await client.committed("all", TopicPartition(topic, partition)) == 100


async def test_a_batch_that_is_left_by_an_exception_is_delivered_again(url: str, topic: str) -> None:
    async with AsyncClient(url) as client, client.group("again", topic, max_records=1000) as group:
        batch = await group.poll()
        assert batch is not None
        with pytest.raises(RuntimeError):
            async with batch:
                raise RuntimeError("no")
        seen: set[str] = set()
        deliveries: list[int] = []
        while len(seen) < 300:
            batch = await group.poll()
            assert batch is not None
            deliveries.append(batch.deliveries)
            async with batch:
                seen |= {(record.value or b"").decode() for record in batch}
        assert max(deliveries) == 2


async def test_records_that_cannot_be_handled_go_to_the_dead_letters_alone(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    poison, dead = b"42", f"{topic}-dead"
    handled: Counter[bytes] = Counter()
    options = {"on_error": "redeliver", "dead_letter_topic": dead, "max_deliveries": 6}
    async with AsyncClient(url) as client:
        async with client.group("dead", topic, wait_s=0.2, max_records=200, **options) as group:  # type: ignore[arg-type]
            while (batch := await group.poll()) is not None:
                async with batch:
                    values = [record.value or b"" for record in batch]
                    if poison in values:
                        raise ValueError("poison")
                    handled.update(values)
        letters = (await client.fetch(dead, 0, 0)).records
    assert handled == {str(n).encode(): 1 for n in range(300) if str(n).encode() != poison}
    (letter,) = letters
    assert letter.value == poison
    headers = dict(letter.headers)
    assert (headers["stele.dead.topic"], headers["stele.dead.offset"]) == (topic.encode(), b"14")
    assert headers[DEAD_LETTER_ERROR] == b"ValueError: poison"


async def test_a_lease_is_extended_while_a_batch_is_handled(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    name = f"slow-{topic}"
    async with (
        AsyncClient(url) as client,
        client.group(name, topic, lease_s=LEASE_S, max_records=1000) as group,
    ):
        batch = await group.poll()
        assert batch is not None
        async with batch, client.group(name, topic, wait_s=0.2) as other:
            await asyncio.to_thread(await_extension, broker, name)
            assert await other.poll() is None


async def read_for_ever(batch: AsyncBatch) -> None:
    while True:
        list(batch)
        await asyncio.sleep(0)


async def test_a_lease_that_is_lost_is_an_exception(url: str, topic: str) -> None:
    async with (
        AsyncClient(url) as client,
        client.group("lost", topic, lease_s=0.2, handling_s_max=0.1, max_records=1000) as group,
        client.group("lost", topic, max_records=1000, wait_s=30) as other,
    ):
        batch = await group.poll()
        assert batch is not None
        await batch.__aenter__()
        taken = await other.poll()
        assert taken is not None
        assert taken.deliveries == 2
        # It was not handled in time, and says so at the next record, and at the end. Its client may notice later
        # than the broker.
        with pytest.raises(LeaseLostError):
            await read_for_ever(batch)
        with pytest.raises(LeaseLostError):
            await batch.__aexit__(None, None, None)
        async with taken:
            pass


async def test_a_group_waits_for_a_broker_that_is_down_and_continues(tmp_path: Path) -> None:
    with run_broker(tmp_path / "data") as broker:
        fill(broker, "orders", 300)
        for name, url in (("http", broker.http_url), ("binary", broker.binary_url)):
            async with AsyncClient(url) as client, client.group(name, "orders", max_records=10) as group:
                batch = await group.poll()
                assert batch is not None
                async with batch:
                    broker.kill()
                    broker.restart()
                handled = len(batch)
                while handled < 300:
                    batch = await group.poll()
                    assert batch is not None
                    assert batch.deliveries == 1
                    async with batch:
                        handled += len(batch)


def test_the_blocking_group_does_the_same(url: str, topic: str) -> None:
    handled: list[bytes | None] = []

    def read() -> None:
        with Client(url) as client, client.group("threads", topic, max_records=20, wait_s=0.2) as group:
            while (batch := group.poll()) is not None:
                with batch:
                    handled.extend(record.value for record in batch)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(handled) == {str(n).encode(): 1 for n in range(300)}


def test_the_blocking_group_extends_redelivers_and_loses(broker: BrokerProcess, url: str, topic: str) -> None:
    name = f"blocking-{topic}"
    with (
        Client(url) as client,
        client.group(name, topic, lease_s=LEASE_S, max_records=1000, on_error="redeliver") as group,
        client.group(name, topic, max_records=1000, wait_s=0.2) as other,
    ):
        batch = group.poll()
        assert batch is not None
        with batch:
            await_extension(broker, name)
            assert other.poll() is None
            raise RuntimeError("delivered again")
        again = other.poll()
        assert again is not None
        assert again.deliveries == 2
        with pytest.raises(LeaseLostError):
            batch.ack()
        again.ack()


def test_options_that_make_no_sense_are_refused(url: str) -> None:
    with Client(url) as client:
        for options in (
            {"max_records": 0},
            {"lease_s": 0},
            {"wait_s": -1},
            {"start": "noon"},
            {"on_error": "ignore"},
            {"dead_letter_topic": "d"},
        ):
            with pytest.raises(ValueError, match=next(iter(options)).partition("_")[0]):
                client.group("g", "t", **options)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="topic"):
            client.group("g")


async def test_a_member_claims_reads_commits_and_leaves(url: str, topic: str) -> None:
    async with AsyncClient(url) as client:
        member = await client.join_group("m", topic, session_timeout_s=10)
        assert len(member.assigned) == PARTITIONS
        partition = member.assigned[0]
        with pytest.raises(GroupError):
            await client.commit("m", member, partition, 1)
        await client.claim("m", member, partition)
        await client.commit("m", member, partition, 10, metadata="mine")
        assert await client.committed("m", partition) == 10
        assert await client.heartbeat("m", member) == member
        await client.release("m", member, partition)
        await client.leave_group("m", member)
        with pytest.raises(GroupError):
            await client.heartbeat("m", member)


def test_the_blocking_member_does_the_same(url: str, topic: str) -> None:
    with Client(url) as client:
        member = client.join_group("mb", topic, session_timeout_s=10)
        partition = member.assigned[0]
        client.claim("mb", member, partition)
        client.commit("mb", member, partition, 10)
        assert client.committed("mb", partition) == 10
        assert client.heartbeat("mb", member) == member
        client.release("mb", member, partition)
        client.leave_group("mb", member)


def stele(*arguments: str, url: str) -> subprocess.CompletedProcess[bytes]:
    return run_stele("groups", *arguments, "--url", url)


def test_the_command_line_lists_describes_resets_and_deletes(broker: BrokerProcess, topic: str) -> None:
    group = f"cli-{topic}"

    def shown(*arguments: str) -> str:
        done = stele(*arguments, url=broker.http_url)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    with Client(broker.http_url) as client, client.group(group, topic, max_records=1000) as reader:
        batch = reader.poll()
        assert batch is not None
        with batch:
            pass
    assert group in shown("list")
    assert "lag 0 records" in shown("describe", group)
    assert "100" in shown("reset", group, "--to", "earliest", "--dry-run")
    assert "lag 0 records" in shown("describe", group)
    assert "3 offsets set" in shown("reset", group, "--to", "earliest", "--yes")
    assert "lag 300 records" in shown("describe", group)
    assert "deleted" in shown("delete", group, "--yes")
    gone = stele("describe", group, url=broker.http_url)
    assert gone.returncode == 1
    assert b"does not exist" in gone.stderr
