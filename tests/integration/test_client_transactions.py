"""``client.transaction``: exactly once, also if the client or the broker is killed between any two steps."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from stele import AsyncClient, Client, TransactionError, TransactionFencedError
from stele.broker_process import BrokerProcess, run_broker
from stele.errors import UnsupportedOperationError
from stele.grouping.async_group import AsyncBatch

# A client that moves what it polls from "input" to "output", and kills itself, or its broker, before step KILL.
WORKER = """
import os, signal, sys
from stele import Client

url, step, victim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def at(number):
    if number == step:
        os.kill(victim or os.getpid(), signal.SIGKILL)

with Client(url, timeout_s=2) as client, client.group("movers", "input", max_records=2, lease_s=1) as group:
    with client.transaction("mover") as tx:
        while (batch := group.poll()) is None:
            pass
        at(0)
        for record in batch:
            tx.produce("output", record.value)
        at(1)
        tx.ack(batch)
        at(2)
    at(3)
"""
STEPS = 4


def read(client: Client, topic: str) -> list[bytes | None]:
    values: list[bytes | None] = []
    offset = 0
    while (page := client.fetch(topic, 0, offset)).next_offset > offset:
        values += [record.value for record in page.records]
        offset = page.next_offset
    return values


async def test_a_block_commits_all_or_nothing(broker: BrokerProcess) -> None:
    async with AsyncClient(broker.http_url) as client:
        await client.produce_many("in-a", ["1", "2"])
        async with client.group("a", "in-a", wait_s=1) as group:
            batch = await group.poll()
            assert batch is not None

            async def fail(batch: AsyncBatch) -> None:
                async with batch, client.transaction("job-a") as tx:
                    await tx.produce("out-a", b"aborted")
                    await tx.ack(batch)
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail(batch)
            batch = await group.poll()
            assert batch is not None
            assert [record.value for record in batch] == [b"1", b"2"]
            async with batch, client.transaction("job-a") as tx:
                receipts = await tx.produce_many("out-a", [record.value or b"" for record in batch])
                assert [receipt.topic for receipt in receipts] == ["out-a", "out-a"]
                await tx.ack(batch)
                assert (await client.fetch("out-a")).records == []
            assert [record.value for record in (await client.fetch("out-a")).records] == [b"1", b"2"]
            assert await group.poll() is None


def test_the_blocking_half_fences_an_earlier_producer(broker: BrokerProcess) -> None:
    with Client(broker.http_url) as client:
        first = client.transaction("job-b")

        def overtake() -> None:
            with first:
                first.produce("out-b", b"first")
                with client.transaction("job-b") as second:
                    second.produce("out-b", b"second")
                first.produce("out-b", b"late")

        with pytest.raises(TransactionFencedError):
            overtake()
        with pytest.raises(TransactionError):
            first.produce("out-b", b"later")
        assert read(client, "out-b") == [b"second"]


def test_an_empty_block_does_nothing(broker: BrokerProcess) -> None:
    with Client(broker.http_url) as client, client.transaction("job-c") as tx:
        assert tx.produce_many("out-c", []) == []


def test_the_binary_protocol_has_no_transactions(broker: BrokerProcess) -> None:
    with (
        Client(broker.binary_url) as client,
        pytest.raises(UnsupportedOperationError, match="http://"),
        client.transaction("job-d"),
    ):
        pass


# ── kill -9 ──


def move(broker: BrokerProcess, step: int, *, victim: int = 0) -> int:
    """Move a batch in a process of its own, which dies at ``step``, or kills ``victim`` there; return its exit code."""
    return subprocess.run(
        [sys.executable, "-c", WORKER, broker.http_url, str(step), str(victim)],
        check=False,
        stderr=subprocess.DEVNULL,
    ).returncode


def move_the_rest(client: Client, count: int) -> None:
    with client.group("movers", "input", max_records=2, lease_s=1) as group:
        while len(read(client, "output")) < count:
            with client.transaction("mover") as tx:
                batch = group.poll()
                if batch is not None:
                    for record in batch:
                        tx.produce("output", record.value)
                    tx.ack(batch)


def check_exactly_once(path: Path, *, client_dies_at: Sequence[int], broker_dies_at: Sequence[int]) -> None:
    values = [b"%d" % number for number in range(2 * (len(client_dies_at) + len(broker_dies_at) + 1))]
    whole = {"records": [{"topic": "whole", "value": "x"}]}
    with run_broker(data_dir=path) as broker:
        with Client(broker.http_url) as client:
            for topic in ("input", "output"):
                client.create_topic(topic, partitions=1)
            client.produce_many("input", values)

        def commit_whole(number: int) -> tuple[int, bytes]:
            key = {"Idempotency-Key": f"{number}"}
            answer = httpx.post(f"{broker.http_url}/v1/transactions", json=whole, headers=key, timeout=60)
            return answer.status_code, answer.content

        for step in client_dies_at:
            assert move(broker, step) == -signal.SIGKILL
        for number, step in enumerate(broker_dies_at):
            first = commit_whole(number)
            move(broker, step, victim=broker.pid)
            assert not broker.is_running
            broker.kill()
            broker.start()
            assert first[0] == 200
            assert commit_whole(number) == first
        with Client(broker.http_url) as client:
            move_the_rest(client, len(values))
            assert read(client, "output") == values
            assert read(client, "whole") == [b"x"] * len(broker_dies_at)


@pytest.mark.long
def test_each_record_is_moved_exactly_once(tmp_path: Path) -> None:
    check_exactly_once(tmp_path, client_dies_at=[1, 2], broker_dies_at=[2])


@pytest.mark.long
def test_each_record_is_moved_exactly_once_wherever_a_process_dies(tmp_path: Path) -> None:
    steps = list(range(STEPS)) * 3
    check_exactly_once(tmp_path, client_dies_at=steps, broker_dies_at=steps)
