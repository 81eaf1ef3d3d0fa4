"""Leases and lag over logs with transactions: what is given out, and what is passed over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.groups.base.messages import CommitRequest, OffsetToCommit
from tests.support.leases import LeaseBench, lease_bench, sent_values, token, values
from tests.support.simulated_time import simulated


@simulated
async def test_a_lease_has_no_record_of_an_open_or_aborted_transaction_and_no_marker(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a", "b", producer_id=7)
        await bench.produce("c", producer_id=8)
        await bench.produce("d")
        bench.mark(7, 0, commit=False)
        bench.mark(8, 0, commit=True)
        await bench.produce("e")
        await bench.produce("f", producer_id=9)
        await bench.produce("g")
        polled = await bench.poll()
        assert values(polled) == ["c", "d", "e"]
        ((_, fetched),) = polled.fetched
        # Not even in the bytes, which the binary listener sends as they are.
        assert sent_values(fetched.batches) == ["c", "d", "e"]
        await bench.leases.ack("g", token(polled))
        assert (await bench.poll()).lease is None
        bench.mark(9, 0, commit=True)
        polled = await bench.poll()
        assert values(polled) == ["f", "g"]


@simulated
async def test_a_poll_is_never_empty_because_a_range_shows_no_record(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        # Longer than a read: the poll has to go on.
        for _ in range(8):
            for _ in range(4):
                await bench.produce("x" * 1000, producer_id=7)
            bench.mark(7, 0, commit=False)
        await bench.produce("a")
        polled = await bench.poll(max_bytes=2000, poll_id="p")
        assert values(polled) == ["a"]
        # A repeated poll finds the same, and may read less at a time.
        again = await bench.poll(max_bytes=2000, poll_id="p")
        assert (values(again), token(again)) == (["a"], token(polled))
        await bench.leases.ack("g", token(polled))
        assert await bench.lag() == [0]


@simulated
async def test_a_repeated_poll_passes_what_shows_no_record_in_pieces_of_a_fetch(tmp_path: Path) -> None:
    async with lease_bench(tmp_path, fetch_bytes_max=3000) as bench:
        for _ in range(8):
            await bench.produce("x" * 1000, producer_id=7)
        bench.mark(7, 0, commit=False)
        await bench.produce("a")
        polled = await bench.poll(poll_id="p")
        again = await bench.poll(poll_id="p")
        assert values(polled) == values(again) == ["a"]


async def waiting(bench: LeaseBench) -> asyncio.Task[list[str]]:
    """A poll that waits for its first record."""

    async def poll() -> list[str]:
        return values(await bench.poll(wait_ms=10_000))

    task = asyncio.create_task(poll())
    await asyncio.sleep(1)
    assert not task.done()
    return task


@simulated
async def test_a_poll_waits_for_the_end_of_a_transaction_and_not_for_its_records(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        task = await waiting(bench)
        await bench.produce("a", producer_id=7)
        await asyncio.sleep(1)
        assert not task.done()
        bench.mark(7, 0, commit=True)
        await asyncio.sleep(0.1)
        assert task.done()
        assert await task == ["a"]


@simulated
async def test_an_aborted_transaction_does_not_end_the_wait_of_a_poll(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        task = await waiting(bench)
        await bench.produce("a", producer_id=7)
        bench.mark(7, 0, commit=False)
        await asyncio.sleep(1)
        assert not task.done()
        await bench.produce("b")
        assert await task == ["b"]


@simulated
async def test_the_lag_of_a_group_runs_to_the_last_stable_offset_and_becomes_0(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a")
        polled = await bench.poll()
        await bench.leases.ack("g", token(polled))
        assert await bench.lag() == [0]
        await bench.produce("b", producer_id=7)
        await bench.produce("c")
        assert await bench.lag() == [0]
        bench.mark(7, 0, commit=True)
        assert await bench.lag() == [3]
        polled = await bench.poll()
        await bench.leases.ack("g", token(polled))
        assert await bench.lag() == [0]
        # What shows no record at all is passed by the polls.
        await bench.produce("d", producer_id=7)
        bench.mark(7, 0, commit=False)
        assert await bench.lag() == [2]
        assert (await bench.poll()).lease is None
        assert await bench.lag() == [0]
        await bench.produce("e")
        assert await bench.lag() == [1]
        polled = await bench.poll()
        assert values(polled) == ["e"]
        await bench.leases.ack("g", token(polled))
        assert await bench.lag() == [0]


@simulated
async def test_a_lease_of_a_part_of_a_batch_ends_within_it(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a", "b", "c", producer_id=7)
        bench.mark(7, 0, commit=True)
        seen: list[str] = []
        for _ in range(3):
            polled = await bench.poll(max_records=1)
            assert len(values(polled)) == 1
            seen += values(polled)
            await bench.leases.ack("g", token(polled))
        assert seen == ["a", "b", "c"]
        assert await bench.lag() == [0]


@pytest.mark.parametrize("start", ["earliest", "latest"])
@simulated
async def test_a_group_that_begins_at_the_end_begins_before_open_transactions(
    tmp_path: Path, start: str
) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a")
        await bench.produce("b", producer_id=7)
        polled = await bench.poll(start=start)
        assert values(polled) == ([] if start == "latest" else ["a"])
        if polled.lease is not None:
            await bench.leases.ack("g", token(polled))
        bench.mark(7, 0, commit=True)
        assert values(await bench.poll(start=start)) == ["b"]


@simulated
async def test_a_position_past_the_last_stable_offset_is_no_error(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.poll()
        await bench.produce("a", producer_id=7)
        await bench.produce("b")
        first = await bench.produce("c")
        membership = bench.coordinator.describe("g").members[0]
        assert membership.is_managed
        # As a consumer that reads uncommitted records commits.
        request = CommitRequest(
            group="g",
            generation=bench.coordinator.describe("g").generation,
            member_id=membership.member_id,
            offsets=[OffsetToCommit(topic="orders", partition=0, offset=first)],
        )
        assert await bench.coordinator.commit(request) == [None]
        assert (await bench.poll()).lease is None
        assert await bench.lag() == [0]
        bench.mark(7, 0, commit=True)
        assert values(await bench.poll()) == ["c"]
