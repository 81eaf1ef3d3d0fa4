"""Several transactions that are committed as one, over a real engine and a real store, on simulated time."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from random import Random

import pytest

from app.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionState,
    StorageFull,
    TransactionFenced,
    UnknownProducerMapping,
)
from app.transactions.joint_commits import MEMBERS_MAX, Member
from app.transactions.messages import ProducerIdentity
from app.transactions.states import TransactionState
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import simulated
from tests.support.transactions import TIMEOUT_MS, TransactionBench

IDS = ("job/0", "job/1", "job/2")
VALUES = {b"job/0", b"job/1", b"job/2"}


async def written(bench: TransactionBench, *ids: str) -> list[Member]:
    """A transaction per id, with a record in the partition of its number."""
    members: list[Member] = []
    for number, transactional_id in enumerate(ids):
        producer = await bench.begin(transactional_id)
        bench.produce(producer, number % 3, transactional_id.encode(), transactional_id=transactional_id)
        members.append(Member(transactional_id, producer))
    return members


async def commit(bench: TransactionBench, members: list[Member], prefix: str | None = None) -> list[object]:
    commits = bench.transactions.joint_commits
    ids = {member.transactional_id for member in members}
    abandoned = [] if prefix is None else await commits.open_ids(prefix, besides=ids)
    return list(await commits.commit(members, abandoned=abandoned))


@simulated
async def test_all_become_visible_together_and_a_repetition_is_answered_as_the_first(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    members = await written(bench, *IDS)
    assert await bench.committed_values() == set()
    continued = await commit(bench, members)
    assert await bench.committed_values() == VALUES
    assert continued == [ProducerIdentity(m.producer.producer_id, m.producer.epoch + 1) for m in members]
    assert await commit(bench, members) == continued
    assert bench.transactions.counts.committed == 3
    await bench.close()


@simulated
async def test_one_that_cannot_be_committed_keeps_the_others_open(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    members = await written(bench, *IDS)
    empty = Member("empty", await bench.begin("empty"))
    stranger = Member("stranger", ProducerIdentity(4711, 0))
    # Another producer begins: the transaction of the first is aborted, and then the first is fenced.
    with pytest.raises(ConcurrentTransactions):
        await bench.begin("job/2")
    while (await bench.transactions.describe("job/2")).state.is_preparing:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.01)
    await bench.end(await bench.begin("job/2"), commit=False, transactional_id="job/2")
    for refused, error in (
        ([*members], TransactionFenced),
        ([*members[:2], empty], InvalidTransactionState),
        ([stranger, *members[:2]], UnknownProducerMapping),
        ([members[0], members[1], members[0]], InvalidRequest),
        ([members[0]] * (MEMBERS_MAX + 1), InvalidRequest),
    ):
        with pytest.raises(error):
            await commit(bench, refused)
        assert await bench.committed_values() == set()
        states = {(await bench.transactions.describe(name)).state for name in ("job/0", "job/1")}
        assert states == {TransactionState.ONGOING}
    await commit(bench, members[:2])
    assert await bench.committed_values() == {b"job/0", b"job/1"}
    (late,) = await written(bench, "late")
    with pytest.raises(InvalidTransactionState, match="was committed before"):
        await commit(bench, [members[0], late])
    await bench.close()


@simulated
async def test_what_else_is_open_under_the_prefix_is_aborted(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    members = await written(bench, *IDS)
    others = await written(bench, "jobs", "other")
    await commit(bench, members[:2], prefix="job/")
    assert await bench.committed_values() == {b"job/0", b"job/1"}
    assert (await bench.transactions.describe("job/2")).state is TransactionState.COMPLETE_ABORT
    with pytest.raises(InvalidTransactionState):
        await bench.end(members[2].producer, transactional_id="job/2")
    await commit(bench, others)
    assert await bench.committed_values() == {b"job/0", b"job/1", b"jobs", b"other"}
    await bench.close()


@simulated
async def test_one_that_takes_too_long_fails_all(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    (first,) = await written(bench, "job/0")
    await asyncio.sleep(TIMEOUT_MS / 1000 - 5)
    (second,) = await written(bench, "job/1")
    await asyncio.sleep(20)
    with pytest.raises(InvalidTransactionState, match="CompleteAbort"):
        await commit(bench, [second, first])
    assert await bench.committed_values() == set()
    await bench.end(second.producer, commit=False, transactional_id="job/1")
    await bench.close()


@simulated
async def test_a_full_disk_delays_the_markers_and_changes_nothing_else(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    members = await written(bench, *IDS)
    # The second time with what was kept back.
    bench.files.fail(Fault(kinds=("write",), call=2, errno=errno.ENOSPC, times=2))
    with pytest.raises(StorageFull):
        await commit(bench, members)
    with pytest.raises(ConcurrentTransactions):
        await commit(bench, members)
    await asyncio.sleep(2)
    await commit(bench, members)
    assert await bench.committed_values() == VALUES
    await bench.close()


@simulated
async def test_markers_are_written_in_the_space_that_is_kept_back(tmp_path: Path) -> None:
    bench = await TransactionBench(tmp_path).open()
    members = await written(bench, *IDS)
    bench.files.fail(Fault(kinds=("write",), call=2, errno=errno.ENOSPC, times=1))
    await commit(bench, members)
    assert await bench.committed_values() == VALUES
    await bench.close()


@simulated
async def test_a_start_on_a_full_disk_writes_the_markers_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    bench = await TransactionBench(tmp_path / "first", SimulatedFiles()).open()
    members = await written(bench, *IDS)
    bench.files.fail(Fault(kinds=("write",), call=2, errno=errno.ENOSPC, times=1 << 30))
    with pytest.raises(StorageFull):
        await commit(bench, members)
    bench.copy_databases(tmp_path / "next")
    files = bench.files.power_cut(Random(0))
    bench.files.heal()
    await bench.close()
    # There is space for markers, but not enough to be kept back again, so appends are refused.
    files.fail(Fault(kinds=("allocate",), errno=errno.ENOSPC, times=1 << 30))
    bench = await TransactionBench(tmp_path / "next", files).open()
    assert await bench.committed_values() == VALUES
    files.heal()
    await bench.close()


@simulated
async def test_a_crash_at_any_call_leaves_all_or_nothing(tmp_path: Path) -> None:
    """One life for each call of disk or store that a commit makes; the next commits what is left."""
    outcomes: set[frozenset[bytes]] = set()
    for call in range(1, 1000):
        path = tmp_path / str(call)
        path.mkdir()
        bench = await TransactionBench(path, SimulatedFiles()).open()
        members = await written(bench, *IDS)
        survivors: list[SimulatedFiles] = []

        def crash(bench: TransactionBench = bench, survivors: list[SimulatedFiles] = survivors) -> None:
            if not survivors:
                survivors.append(bench.files.power_cut(Random(bench.files.calls)))
                bench.copy_databases(bench.path / "next")

        bench.files.alarm(call, crash)
        await commit(bench, members)
        is_over = not survivors
        crash()
        await bench.close()
        bench = await TransactionBench(path / "next", survivors[0]).open()
        values = frozenset(await bench.committed_values())
        assert values in (frozenset(), VALUES), f"after a crash at call {call}"
        outcomes.add(values)
        try:
            await commit(bench, members)
        except UnknownProducerMapping:
            # The data was not synced, so nothing is known of the transactions but their ids.
            raise AssertionError("ids are durable") from None
        except InvalidTransactionState:
            # A power cut before the sync took the data, and with it the open transactions.
            assert not values
        else:
            assert await bench.committed_values() == VALUES
        await bench.close()
        if is_over:
            break
    assert len(outcomes) == 2
