"""Each operation, each call of it to the disk, each errno: what is refused changes nothing and stops nobody else.

Three rules hold for every cell:

- only a broken disk and a failed sync stop the log; a full disk and a limit that was reached refuse a request;
- what was refused is as it was, also after a restart;
- other partitions go on, and the same request succeeds once the cause is gone.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

import pytest
from stele.wire import record_batch as rb

from app.broker.topics import NAME_LENGTH_MAX
from app.errors import LogDirFailed, SteleError
from app.storage.cleaner import CleanerOptions
from app.storage.embedded import EmbeddedEngine, EngineOptions
from app.storage.engine import PartitionSpec
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import ORDERS, spec_of
from tests.support.engines import DATA, append_raw, append_synced, read_batches
from tests.support.simulated_files import KINDS, Fault, SimulatedFiles
from tests.support.simulated_time import SimulatedClock, run_simulated
from tests.support.variants import long_but

pytestmark = pytest.mark.usefixtures("without_logs", "without_pauses")

# With the longest names and numbers that there are.
OTHER = TopicPartition("o" * NAME_LENGTH_MAX, 9_999)
KEYED = TopicPartition("k" * NAME_LENGTH_MAX, 9_999)
NEW = TopicPartition("n" * NAME_LENGTH_MAX, 9_999)
PLAIN_CONFIG = TopicConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1, flush_ms=1 << 40)
KEYED_CONFIG = TopicConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    retention_ms=-1,
    cleanup_policy="compact",
    min_cleanable_dirty_ratio=0.01,
    flush_ms=1 << 40,
)
OPTIONS = EngineOptions(
    flush_interval_ms=10**9,
    checkpoint_interval_ms=10**9,
    retention_interval_ms=10**9,
    cleaner=CleanerOptions(interval_ms=10**9),
)

NAMING = ("open", "create", "exists", "list_dir", "make_dir", "rename", "remove", "remove_tree", "open_dir")
OPENING = ("open", "create", "list_dir", "remove_tree", "open_dir")
GROWING = ("create", "make_dir", "rename", "write", "truncate", "allocate", "sync", "sync_dir")
# Which calls may fail with it.
CALLS_OF = {
    errno.ENOSPC: GROWING,
    errno.EDQUOT: GROWING,
    errno.EFBIG: ("write", "truncate", "allocate"),
    errno.EMFILE: OPENING,
    errno.ENFILE: OPENING,
    errno.ENOMEM: KINDS,
    errno.ENAMETOOLONG: NAMING,
    errno.EIO: KINDS,
}
SYNCS = {"sync", "sync_dir"}
# Long enough for all that an operation tries again.
PATIENCE_S = 10


@dataclass
class World:
    """An engine with some records, as its clients know it."""

    files: SimulatedFiles
    clock: SimulatedClock
    engine: EmbeddedEngine

    @classmethod
    def on(cls, files: SimulatedFiles) -> World:
        clock = SimulatedClock()
        files.now_ms = clock.now_ms
        return cls(files, clock, EmbeddedEngine(files, DATA, clock=clock, options=OPTIONS))

    def spec(self, name: TopicPartition) -> PartitionSpec:
        return spec_of(name, clock=self.clock, config=KEYED_CONFIG if name == KEYED else PLAIN_CONFIG)

    async def start(self, *names: TopicPartition) -> None:
        await self.engine.open()
        await self.engine.create([self.spec(name) for name in names or (ORDERS, OTHER, KEYED)])
        await self.engine.start()

    async def fill(self) -> None:
        for number in range(8):
            for name in (ORDERS, OTHER):
                await append_synced(self.engine, b"%d" % number + b"x" * 60, name=name)
            await self.append_keyed(number)
        await self.engine.flush()

    async def append_keyed(self, number: int) -> None:
        builder = rb.BatchBuilder()
        builder.append(timestamp_ms=1_000, key=b"k%d" % (number % 2), value=b"%d" % number + b"x" * 60)
        ticket = append_raw(self.engine, builder.build(), name=KEYED, sync=True)
        if ticket.future is not None:
            await ticket.future

    async def seen(self, name: TopicPartition) -> tuple[int, int, list[tuple[int, bytes | None]]]:
        """Return the start, the end and the records of a partition."""
        state = self.engine.state(name)
        start, end, offset = state.log_start_offset, state.log_end_offset, state.log_start_offset
        records: list[tuple[int, bytes | None]] = []
        while raw := await read_batches(self.engine, offset, name=name):
            # Compaction leaves holes.
            for header in rb.iter_headers(raw):
                records += [(record.offset, record.value) for record in rb.decode_records(raw, header)]
                offset = header.next_offset
        return start, end, [record for record in records if record[0] >= start]


async def create(world: World) -> None:
    await world.engine.create([world.spec(NEW)])


async def drop(world: World) -> None:
    if not await world.engine.drop([OTHER]):
        assert await world.engine.remove_leftovers(*OTHER, world.spec(OTHER).topic_id) in (True, False)


async def purge(world: World) -> None:
    await world.engine.delete_records(ORDERS, 5)


async def append(world: World) -> None:
    """Fill a segment and begin the next one."""
    for _ in range(4):
        await append_synced(world.engine, b"new" + b"y" * 100)


async def flush(world: World) -> None:
    ticket = append_raw(world.engine, bytearray(batch()), sync=False)
    assert ticket.base_offset == 8
    await world.engine.flush()


async def retain(world: World) -> None:
    world.engine.configure(
        ORDERS, TopicConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1, retention_bytes=0)
    )
    await world.engine.enforce_retention()


async def compact(world: World) -> None:
    await world.engine.compact()


async def close(world: World) -> None:
    await world.engine.close()


def batch() -> bytes:
    builder = rb.BatchBuilder()
    builder.append(timestamp_ms=1_000, value=b"one more")
    return bytes(builder.build())


OPERATIONS: dict[str, Callable[[World], Awaitable[None]]] = {
    "create": create,
    "drop": drop,
    "purge": purge,
    "append": append,
    "flush": flush,
    "retain": retain,
    "compact": compact,
    "close": close,
}
# What they may change if they are refused: an append may be stored without its sync, and what retention has deleted
# before stays deleted.
MAY_MOVE = {"append", "flush", "retain"}


async def fail_at(operation: str, number: int, call: int, *, times: int) -> bool:
    """Run ``operation`` where the ``call``-th call fails; return False if it has fewer."""
    world = World.on(SimulatedFiles())
    await world.start()
    await world.fill()
    before = {name: await world.seen(name) for name in (ORDERS, OTHER, KEYED)}
    fault = world.files.fail(Fault(errno=number, call=call, kinds=CALLS_OF[number], times=times))
    running = asyncio.ensure_future(OPERATIONS[operation](world))
    await asyncio.wait((running,), timeout=PATIENCE_S)
    struck = set(fault.struck)
    world.files.heal()
    refusal: BaseException | None = None
    try:
        await running
    except SteleError as error:
        refusal = error
    cell = f"{operation}, {errno.errorcode[number]} at call {call} ({struck}): {refusal}"
    if not struck:
        assert refusal is None, cell
        await world.engine.close()
        return False
    if operation == "close":
        await restarted(world, before, None, cell)
        return True
    failure = world.engine.failure
    if failure is not None:
        assert number == errno.EIO or struck & SYNCS, cell
    else:
        assert not isinstance(refusal, LogDirFailed) or number == errno.EIO, cell
        # The others go on.
        await append_synced(world.engine, b"goes on", name=KEYED if operation == "drop" else OTHER)
        if refusal is not None and operation not in MAY_MOVE:
            for name in (ORDERS, OTHER, KEYED):
                if name != OTHER:
                    assert await world.seen(name) == before[name], cell
            if times > 1:
                # What could not be removed goes with the next retention.
                await world.engine.enforce_retention()
            assert DATA / str(NEW) not in {path.parent for path in world.files.paths()}, cell
    await restarted(world, before, None if failure is not None else refusal, cell, operation=operation)
    if failure is None and refusal is not None:
        # The cause is gone, so it succeeds.
        await OPERATIONS[operation](world)
    await world.engine.close()
    return True


async def restarted(
    world: World,
    before: dict[TopicPartition, tuple[int, int, list[tuple[int, bytes | None]]]],
    refusal: BaseException | None,
    cell: str,
    *,
    operation: str = "close",
) -> None:
    """After a crash and a loss of power, all that was synced is there, and what was refused did not happen."""
    names = [name for name in (ORDERS, OTHER, KEYED) if operation != "drop" or name != OTHER]
    for files in (world.files.crash(Random(1)), world.files.power_cut(Random(1))):
        after = World.on(files)
        await after.start(*names)
        for name in names:
            start, end, records = await after.seen(name)
            old_start, old_end, old_records = before[name]
            assert end >= old_end, cell
            if operation == "compact" and name == KEYED:
                assert records[-1] == old_records[-1], cell
                continue
            assert set(records) >= {record for record in old_records if record[0] >= start}, cell
            if refusal is not None and operation not in MAY_MOVE:
                assert start == old_start, cell
        await after.engine.close()


@pytest.mark.parametrize(
    ("operation", "number"),
    long_but(
        [
            pytest.param(operation, number, id=f"{operation}-{errno.errorcode[number]}")
            for operation in OPERATIONS
            for number in CALLS_OF
        ],
        *("create-ENOSPC", "append-ENOSPC", "drop-ENOSPC", "purge-ENOSPC", "append-EMFILE", "append-EIO"),
    ),
)
def test_what_is_refused_changes_nothing_and_stops_nobody_else(operation: str, number: int) -> None:
    """Every call of the operation fails, once or from then on."""

    async def main() -> int:
        for call in range(1, 10_000):
            if not await fail_at(operation, number, call, times=1 if call % 2 else 1 << 30):
                return call - 1
        raise AssertionError("the operation has no end")

    # A flush opens nothing, and a deletion writes nothing.
    assert run_simulated(main) > 0 or operation == "flush" or (operation, number) == ("drop", errno.EFBIG)


@pytest.mark.parametrize(
    "number",
    long_but([pytest.param(number, id=errno.errorcode[number]) for number in CALLS_OF], "ENOSPC"),
)
def test_a_start_that_was_refused_succeeds_when_the_cause_is_gone(number: int) -> None:
    async def attempt(call: int) -> bool:
        first = World.on(SimulatedFiles())
        await first.start()
        await first.fill()
        before = {name: await first.seen(name) for name in (ORDERS, OTHER, KEYED)}
        files = first.files.power_cut(Random(call))
        second = World.on(files)
        fault = files.fail(
            Fault(errno=number, call=call, kinds=CALLS_OF[number], times=1 if call % 2 else 1 << 30)
        )
        cell, refusal = f"{errno.errorcode[number]} at call {call}", str(DATA)
        try:
            await second.start()
        except (OSError, SteleError) as error:
            refusal = str(error)
        files.heal()
        assert str(DATA) in refusal, f"{cell}: {refusal} names no file"
        await second.engine.close()
        third = World.on(files)
        await third.start()
        for name in (ORDERS, OTHER, KEYED):
            assert await third.seen(name) == before[name], cell
        await append_synced(third.engine, b"goes on")
        await third.engine.close()
        return bool(fault.hits)

    async def main() -> int:
        for call in range(1, 10_000):
            if not await attempt(call):
                return call - 1
        raise AssertionError("a start has no end")

    assert run_simulated(main) > 0
