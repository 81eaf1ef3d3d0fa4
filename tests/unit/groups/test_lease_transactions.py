"""Leases that a transaction settles: who may, until when, and what others see meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.errors import GroupStoreFailed, InvalidTransactionState, LeaseFenced
from app.groups.base.messages import CommitRequest, ManagedJoin, OffsetToCommit, Results
from tests.support.leases import TOPIC, LeaseBench, lease_bench, token, values
from tests.support.simulated_time import simulated


async def leased(bench: LeaseBench, **request: int | str) -> str:
    """Produce a record and lease it; returns the token."""
    await bench.produce("a")
    return token(await bench.poll(**request))


@simulated
async def test_a_lease_is_acknowledged_when_the_transaction_commits(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench)
        await bench.stage(lease)
        assert bench.committed() == -1
        assert len(bench.leases.leases("g")) == 1
        await bench.end(commit=True)
        assert bench.committed() == 1
        assert bench.leases.leases("g") == []
        assert (await bench.poll()).lease is None
        # As an ack of which the answer was lost.
        await bench.leases.ack("g", lease)
        with pytest.raises(LeaseFenced):
            await bench.leases.nack("g", lease)


@simulated
async def test_a_lease_is_given_back_when_the_transaction_aborts_and_counts_as_a_failure(
    tmp_path: Path,
) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench)
        await bench.stage(lease)
        await bench.end(commit=False)
        with pytest.raises(LeaseFenced):
            await bench.leases.ack("g", lease)
        with pytest.raises(LeaseFenced):
            await bench.stage(lease)
        again = await bench.poll()
        assert values(again) == ["a"]
        assert [part.deliveries for part, _ in again.fetched] == [2]


@simulated
async def test_a_staged_lease_does_not_expire_and_its_records_go_to_nobody_else(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench, lease_ms=1000, poll_id="p")
        await bench.stage(lease)
        await asyncio.sleep(60)
        assert (await bench.poll()).lease is None
        # Nor to the poll that got them first: the transaction may still commit.
        assert (await bench.poll(poll_id="p")).lease is None
        await bench.end(commit=True)
        assert bench.committed() == 1


@simulated
async def test_a_poll_that_waits_gets_the_records_when_the_transaction_aborts(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.stage(await leased(bench))
        polling = asyncio.create_task(bench.poll(wait_ms=10_000))
        await asyncio.sleep(1)
        assert not polling.done()
        await bench.end(commit=False)
        await asyncio.sleep(0.1)
        assert polling.done()
        assert values(await polling) == ["a"]


@simulated
async def test_nobody_settles_a_lease_beside_the_transaction(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench)
        await bench.stage(lease)
        with pytest.raises(LeaseFenced):
            await bench.leases.ack("g", lease)
        with pytest.raises(LeaseFenced):
            await bench.leases.nack("g", lease)
        with pytest.raises(LeaseFenced):
            await bench.stage(lease, producer_id=8)
        # The same request again: its answer was lost.
        await bench.stage(lease)
        await bench.end(8, commit=True)
        assert bench.committed() == -1
        await bench.end(7, commit=True)
        assert bench.committed() == 1


@simulated
async def test_one_transaction_settles_several_leases(tmp_path: Path) -> None:
    async with lease_bench(tmp_path, partitions=2) as bench:
        for partition in range(2):
            await bench.produce(f"{partition}", partition=partition)
        leases = [token(await bench.poll(max_partitions=1)) for _ in range(2)]
        for lease in leases:
            await bench.stage(lease)
        await bench.end(commit=True)
        assert (bench.committed(0), bench.committed(1)) == (1, 1)
        assert bench.leases.leases("g") == []


@simulated
async def test_a_lease_that_ran_out_and_was_given_to_another_cannot_be_staged(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        slow = await leased(bench, lease_ms=100)
        quick = token(await bench.poll(wait_ms=10_000))
        with pytest.raises(LeaseFenced):
            await bench.stage(slow)
        await bench.stage(quick)
        await bench.end(commit=True)
        assert bench.committed() == 1


@simulated
async def test_what_is_refused_leaves_the_lease_in_force(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench, lease_ms=1000)

        async def refuse(request: CommitRequest) -> Results:
            raise InvalidTransactionState("t", "it is not open")

        with pytest.raises(InvalidTransactionState):
            await bench.leases.stage_acknowledgement("g", lease, producer_id=7, stage=refuse)
        await bench.leases.ack("g", lease)
        assert bench.committed() == 1

        lease = await leased(bench, lease_ms=1000)

        async def fail_late(request: CommitRequest) -> Results:
            await asyncio.sleep(2)
            raise GroupStoreFailed(tmp_path, "for the test")

        with pytest.raises(GroupStoreFailed):
            await bench.leases.stage_acknowledgement("g", lease, producer_id=7, stage=fail_late)
        # Its time was over meanwhile.
        assert bench.leases.leases("g") == []


@pytest.mark.parametrize("commit", [True, False])
@simulated
async def test_a_transaction_that_ends_before_the_answer_settles_the_lease(
    tmp_path: Path, commit: bool
) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench)

        async def stage(request: CommitRequest) -> Results:
            results = await bench.coordinator.stage_offsets(request, producer_id=7, producer_epoch=0)
            await bench.end(commit=commit)
            return results

        await bench.leases.stage_acknowledgement("g", lease, producer_id=7, stage=stage)
        assert bench.leases.leases("g") == []
        assert values(await bench.poll()) == ([] if commit else ["a"])


# ── restarts and rebalances ──


@pytest.mark.parametrize("commit", [True, False])
@simulated
async def test_after_a_restart_the_records_wait_for_the_end_of_the_transaction(
    tmp_path: Path, commit: bool
) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench)
        await bench.stage(lease)
        await bench.restart()
        polling = asyncio.create_task(bench.poll(wait_ms=10_000))
        await asyncio.sleep(1)
        assert not polling.done()
        for refused in (
            bench.leases.ack("g", lease),
            bench.leases.nack("g", lease),
            bench.stage(lease, producer_id=8),
        ):
            with pytest.raises(LeaseFenced):
                await refused
        await bench.end(commit=commit)
        if commit:
            assert values(await polling) == []
            await bench.leases.ack("g", lease)
        else:
            async with asyncio.timeout(1):
                assert values(await polling) == ["a"]


@simulated
async def test_after_a_restart_the_same_transaction_may_stage_the_lease_again(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        lease = await leased(bench)
        await bench.stage(lease)
        await bench.restart()
        await bench.stage(lease)
        await bench.end(commit=True)
        assert bench.committed() == 1
        assert bench.leases.leases("g") == []


async def take_over(bench: LeaseBench) -> tuple[str, int]:
    """Let another member join the group, which takes over the first partition; its id and generation."""
    joined = await bench.coordinator.join_managed(
        ManagedJoin(group="g", topics=[TOPIC], client_id="another", session_timeout_ms=30_000)
    )
    return joined.member_id, joined.generation


@simulated
async def test_a_lease_whose_partition_belongs_to_another_member_cannot_be_staged(tmp_path: Path) -> None:
    async with lease_bench(tmp_path, partitions=2) as bench:
        for partition in range(2):
            await bench.produce("a", partition=partition)
        lease = token(await bench.poll())
        await take_over(bench)
        with pytest.raises(LeaseFenced):
            await bench.stage(lease)
        await bench.end(commit=True)
        assert (bench.committed(0), bench.committed(1)) == (-1, -1)


@simulated
async def test_a_staged_lease_survives_a_rebalance_and_the_new_owner_waits_for_the_transaction(
    tmp_path: Path,
) -> None:
    async with lease_bench(tmp_path, partitions=2) as bench:
        for partition in range(2):
            await bench.produce("a", partition=partition)
        await bench.stage(token(await bench.poll()))
        member_id, generation = await take_over(bench)
        offsets = bench.coordinator.committed("g", [(TOPIC, 0), (TOPIC, 1)], require_stable=True)
        assert all(offset.error is not None for offset in offsets)
        # A member that commits nevertheless wins.
        (part,) = bench.coordinator.membership("g", member_id).assigned
        await bench.coordinator.commit(
            CommitRequest(
                group="g",
                generation=generation,
                member_id=member_id,
                offsets=[OffsetToCommit(topic=TOPIC, partition=part.partition, offset=0)],
            )
        )
        await bench.end(commit=True)
        assert (bench.committed(part.partition), bench.committed(1 - part.partition)) == (0, 1)
        assert bench.leases.leases("g") == []
