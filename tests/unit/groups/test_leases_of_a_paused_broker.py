"""A lease of records ends in time at a broker that may have lost its groups to another one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.cluster.group_store import EndPendingOffsets
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import NotCoordinator
from app.groups.base.messages import CommitRequest, OffsetToCommit
from tests.support.leases import TOPIC, lease_bench, token, values
from tests.support.simulated_time import simulated


@simulated
async def test_a_lease_that_ends_while_the_broker_may_not_have_the_group_is_free_and_not_counted(
    tmp_path: Path,
) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a")
        assert values(await bench.poll(lease_ms=1000)) == ["a"]
        # What the lease of the group says.
        ended: list[NotCoordinator] = []

        def check() -> None:
            for error in ended:
                raise error

        bench.coordinator.check_each_call(check)
        ended.append(NotCoordinator(None))
        await asyncio.sleep(2)
        assert bench.leases.leases("g") == []
        # No other broker has taken the group.
        ended.clear()
        again = await bench.poll()
        assert values(again) == ["a"]
        assert [part.deliveries for part, _ in again.fetched] == [1]


@simulated
async def test_an_ack_is_not_answered_for_a_transaction_that_ended_at_another_broker(tmp_path: Path) -> None:
    async with lease_bench(tmp_path) as bench:
        await bench.produce("a")
        lease = token(await bench.poll())
        await bench.stage(lease)
        await bench.coordinator.stand_by(lambda: NotCoordinator(2))
        bench.leases.stand_by()
        # Another broker has the group for a while, and the transaction is aborted there.
        store = SqliteGroupStore(tmp_path / "groups.sqlite")
        store.open()
        store.write([EndPendingOffsets(producer_id=7, is_committed=False)])
        store.close()
        await bench.coordinator.open()
        # Another transaction of the producer.
        request = CommitRequest(group="h", offsets=[OffsetToCommit(topic=TOPIC, partition=0, offset=1)])
        await bench.coordinator.stage_offsets(request, producer_id=7, producer_epoch=0)
        await bench.end(commit=True)
        await bench.leases.ack("g", lease)
        assert bench.committed() == 1
