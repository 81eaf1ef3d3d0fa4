"""Passes in a process: the files of a thread's pass, and what happens when the process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from app.clock import SystemClock
from app.errors import CorruptLog
from app.storage.cleaning import worker_process
from app.storage.cleaning.cleaned_segment import CLEANED_SUFFIX
from app.storage.cleaning.pass_state import PassCounts
from app.storage.cleaning.pass_work import PassOrder
from app.storage.cleaning.pass_workers import PassWorker, ProcessWorker, ThreadWorker
from app.storage.cleaning.planning import SegmentFacts, groups
from app.storage.disk.files import RealFiles
from app.storage.disk.pace import WorkAborted
from tests.support.compaction import NOW_MS, RULES, CleanedPartition, Keyed, batch


@pytest.fixture
def partition(tmp_path: Path) -> CleanedPartition[RealFiles]:
    partition = CleanedPartition(RealFiles(), tmp_path)
    batches: list[bytes] = []
    for number in range(30):
        keyed = [
            Keyed(b"k%d" % (key % 7), None if key % 5 == 0 else b"v") for key in range(number, number + 4)
        ]
        batches.append(batch(keyed, number * 4))
    partition.write([batches[:10], batches[10:20], batches[20:]])
    return partition


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[ProcessWorker]:
    worker = ProcessWorker(tmp_path)
    yield worker
    await worker.close()


def order_of(partition: CleanedPartition[RealFiles]) -> PassOrder:
    facts = partition.facts()
    return PassOrder(
        directory=str(partition.directory),
        segments=facts,
        first_dirty=0,
        first_uncleanable=facts[-1].next_offset,
        last_batches=frozenset({8}),
        now_ms=NOW_MS,
        delete_retention_ms=RULES.delete_retention_ms,
        index_interval_bytes=100,
        memory_bytes=1 << 20,
    )


async def run(worker: PassWorker, order: PassOrder) -> tuple[dict[str, bytes], PassCounts]:
    """One pass that replaces nothing: the files it leaves, which it removes, and its counts."""
    counts = PassCounts()
    mapped_end = await worker.begin(order, bytes_per_s=None)
    cleaned: Sequence[Sequence[SegmentFacts]] = groups(order.segments, RULES, mapped_end=mapped_end)
    assert [await worker.rewrite(group, counts) for group in cleaned] == [True] * len(cleaned)
    await worker.end()
    return taken(Path(order.directory)), counts


def taken(directory: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for path in sorted(directory.glob(f"*{CLEANED_SUFFIX}")):
        files[path.name] = path.read_bytes()
        path.unlink()
    return files


def process_of(worker: ProcessWorker) -> int:
    assert worker.pid is not None
    return worker.pid


async def test_the_process_writes_the_same_bytes_as_the_thread(
    partition: CleanedPartition[RealFiles], worker: ProcessWorker
) -> None:
    async def at_once(work: object) -> None:
        assert callable(work)
        work()

    thread = ThreadWorker(RealFiles(), SystemClock(), at_once)
    by_thread = await run(thread, order_of(partition))
    assert by_thread[0]
    assert await run(worker, order_of(partition)) == by_thread


async def test_one_process_does_all_passes(
    partition: CleanedPartition[RealFiles], worker: ProcessWorker
) -> None:
    first = await run(worker, order_of(partition))
    pid = process_of(worker)
    assert await run(worker, order_of(partition)) == first
    assert process_of(worker) == pid


async def test_a_killed_process_fails_its_pass_alone(
    partition: CleanedPartition[RealFiles], worker: ProcessWorker
) -> None:
    order = order_of(partition)
    await worker.begin(order, bytes_per_s=None)
    os.kill(process_of(worker), signal.SIGKILL)
    with pytest.raises(ChildProcessError, match="code -9"):
        await worker.rewrite(order.segments[:1], PassCounts())
    await worker.end()
    files, _ = await run(worker, order)
    assert files


async def test_an_aborted_pass_ends_with_its_process(
    partition: CleanedPartition[RealFiles], worker: ProcessWorker
) -> None:
    order = order_of(partition)
    await worker.begin(order, bytes_per_s=None)
    worker.abort()
    with pytest.raises(WorkAborted):
        await worker.rewrite(order.segments[:1], PassCounts())
    await worker.end()
    assert worker.pid is None
    files, _ = await run(worker, order)
    assert files


async def test_errors_of_the_disk_come_back_as_they_were(
    partition: CleanedPartition[RealFiles], worker: ProcessWorker
) -> None:
    order = order_of(partition)
    path = partition.directory / f"{40:020d}.log"
    log = bytearray(path.read_bytes())
    log[-1] ^= 1
    path.write_bytes(log)
    with pytest.raises(CorruptLog) as raised:
        await worker.begin(order, bytes_per_s=None)
    assert (raised.value.path, raised.value.offset) == (path, 76)
    await worker.end()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        await worker.begin(order, bytes_per_s=None)


def test_the_process_ends_with_its_standard_input(tmp_path: Path) -> None:
    """A broker that is killed leaves none behind."""
    done = subprocess.run(
        [sys.executable, "-m", worker_process.__name__, str(tmp_path)],
        input=b"",
        capture_output=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
