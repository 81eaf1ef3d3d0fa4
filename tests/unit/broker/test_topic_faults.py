"""Each change of a topic, each call to disk and catalog: all of it happens or none, also after a restart."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.topics import NAME_LENGTH_MAX, Topic
from app.clock import SystemClock
from app.cluster.sqlite.catalog import SqliteCatalog
from app.errors import (
    CatalogFailed,
    InvalidTopicName,
    SteleError,
    StorageFull,
    StorageLimitReached,
    TooManyPartitions,
)
from app.settings import Settings
from app.storage.embedded import EmbeddedEngine, EngineOptions
from tests.support.batches import batch_of
from tests.support.engines import DATA, QUIET
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.sqlite_faults import TEXTS, SqliteFaults, install

# As long as a name can be: all that is made from it must still be allowed.
LONG = "l" * NAME_LENGTH_MAX


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> SqliteFaults:
    return install(monkeypatch)


@asynccontextmanager
async def broker_on(
    files: SimulatedFiles, catalog: Path, options: EngineOptions = QUIET
) -> AsyncGenerator[Broker]:
    clock = SystemClock()
    engine = EmbeddedEngine(files, DATA, clock=clock, options=options)
    await engine.open()
    broker = Broker(
        engine=engine, catalog=SqliteCatalog(catalog), clock=clock, settings=Settings(num_partitions=2)
    )
    await broker.open()
    await engine.start()
    try:
        yield broker
    finally:
        await broker.close()


async def create(broker: Broker) -> None:
    await broker.create_topic(LONG, partitions=3)


async def grow(broker: Broker) -> None:
    await broker.alter_topic("orders", partitions=20, configs={"retention.ms": "5000"})


async def configure(broker: Broker) -> None:
    await broker.alter_topic("orders", configs={"retention.bytes": "1000"})


async def delete(broker: Broker) -> None:
    await broker.delete_topic("orders")


CHANGES: dict[str, Callable[[Broker], Awaitable[None]]] = {
    "create": create,
    "grow": grow,
    "configure": configure,
    "delete": delete,
}


def shown(broker: Broker) -> dict[str, tuple[int, dict[str, str]]]:
    def of(topic: Topic) -> tuple[int, dict[str, str]]:
        return topic.partitions, dict(topic.configs)

    return {topic.name: of(topic) for topic in broker.topics() if not topic.is_internal}


def directories(files: SimulatedFiles) -> set[str]:
    return {path.parent.name for path in files.paths() if path.parent != DATA}


async def change_under(
    files: SimulatedFiles,
    catalog: Path,
    change: Callable[[Broker], Awaitable[None]],
    arm: Callable[[], None],
    heal: Callable[[], None],
) -> SteleError | None:
    """Make a change under a fault; check that it is whole or did not happen, now and after a restart."""
    refusal: SteleError | None = None
    async with broker_on(files, catalog) as broker:
        if not broker.has_topic("orders"):
            await broker.create_topic("orders", partitions=2)
        if not broker.has_topic("other"):
            await broker.create_topic("other", partitions=1)
        before = shown(broker)
        arm()
        try:
            await change(broker)
        except SteleError as error:
            refusal = error
        heal()
        after = shown(broker)
        assert (after == before) is (refusal is not None), refusal
        assert broker.failure is None
        await broker.create_topic("new", partitions=1)
        await broker.delete_topic("new")
        assert shown(broker) == after
    async with broker_on(files, catalog) as broker:
        assert shown(broker) == after, refusal
        expected = {f"{name}-{number}" for name, (count, _) in after.items() for number in range(count)}
        assert directories(files) == expected, refusal
    return refusal


SPACE = ("create", "make_dir", "rename", "write")
FILES = ("open", "create", "open_dir", "list_dir")


@pytest.mark.every(4)
@pytest.mark.parametrize("code", TEXTS, ids=TEXTS.get)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_that_the_catalog_refuses_leaves_no_trace(
    change: str, code: int, tmp_path: Path, faults: SqliteFaults
) -> None:
    if code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE):
        pytest.skip("what such an error leaves on the disk is not known: see the next test")
    call = 0
    for call in range(1, 20):
        files = SimulatedFiles()
        files.make_dir(DATA)
        refusal = await change_under(
            files,
            tmp_path / f"{call}.sqlite",
            CHANGES[change],
            lambda call=call: faults.arm(code, call=call),
            faults.heal,
        )
        if not faults.struck:
            break
        if change in ("configure", "delete") and code == sqlite3.SQLITE_FULL:
            # It frees space, so it gets what is kept back.
            assert refusal is None
        elif refusal is not None:
            assert isinstance(refusal, StorageFull if code == sqlite3.SQLITE_FULL else CatalogFailed)
            assert f"{call}.sqlite" in str(refusal)
        else:
            # The topic is gone; that its files are, too, is noted at the next start.
            assert change == "delete"
    assert call > 2


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_WRITE])
async def test_after_a_failed_sync_the_catalog_stores_nothing_more(
    code: int, tmp_path: Path, faults: SqliteFaults
) -> None:
    files = SimulatedFiles()
    files.make_dir(DATA)
    async with broker_on(files, tmp_path / "catalog.sqlite") as broker:
        await broker.create_topic("orders", partitions=1)
        faults.arm(code, call=3)
        with pytest.raises(CatalogFailed):
            await broker.create_topic("refused", partitions=1)
        faults.heal()
        with pytest.raises(CatalogFailed, match="before"):
            await broker.create_topic("later", partitions=1)
        assert list(shown(broker)) == ["orders"]
        assert directories(files) == {"orders-0"}
    async with broker_on(files, tmp_path / "catalog.sqlite") as broker:
        await broker.create_topic("later", partitions=1)


REFUSALS: dict[str, tuple[int, tuple[str, ...], type[SteleError]]] = {
    "ENOSPC": (errno.ENOSPC, SPACE, StorageFull),
    "EMFILE": (errno.EMFILE, FILES, StorageLimitReached),
    "ENAMETOOLONG": (errno.ENAMETOOLONG, ("create", "make_dir"), InvalidTopicName),
    "EDQUOT": (errno.EDQUOT, SPACE, StorageFull),
    "ENFILE": (errno.ENFILE, FILES, StorageLimitReached),
    "ENOMEM": (errno.ENOMEM, ("open", "create", "make_dir", "open_dir"), StorageLimitReached),
}
FIRST = ["create-ENOSPC", "create-ENAMETOOLONG"]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in FIRST else pytest.mark.long)
        for case in (f"{change}-{refusal}" for change in ("create", "grow", "delete") for refusal in REFUSALS)
    ],
)
async def test_a_change_that_the_disk_refuses_leaves_no_trace(case: str, tmp_path: Path) -> None:
    change, _, name = case.partition("-")
    number, kinds, expected = REFUSALS[name]
    call = 0
    for call in range(1, 200):
        files = SimulatedFiles()
        files.make_dir(DATA)
        fault = Fault(errno=number, call=call, kinds=kinds)
        refusal = await change_under(
            files,
            tmp_path / f"{call}.sqlite",
            CHANGES[change],
            lambda files=files, fault=fault: files.fail(fault) and None,
            files.heal,
        )
        if not fault.hits:
            break
        if change == "delete":
            # It is done when the catalog has it; files that are in the way go later.
            assert refusal is None
        elif refusal is not None:
            assert isinstance(refusal, expected), refusal
    assert call > 3 or change == "delete"


async def test_files_that_a_deletion_left_go_at_the_next_start(tmp_path: Path) -> None:
    files = SimulatedFiles()
    files.make_dir(DATA)
    async with broker_on(files, tmp_path / "catalog.sqlite") as broker:
        await broker.create_topic(LONG, partitions=2)
        files.fail(Fault(errno=errno.ENOSPC, kinds=("rename",), times=1 << 30))
        await broker.delete_topic(LONG)
        assert directories(files) == {f"{LONG}-0", f"{LONG}-1"}
    files.heal()
    async with broker_on(files, tmp_path / "catalog.sqlite") as broker:
        assert directories(files) == set()
        # The name can be used again.
        await broker.create_topic(LONG, partitions=1)
    async with broker_on(files, tmp_path / "catalog.sqlite") as broker:
        assert directories(files) == {f"{LONG}-0"}


async def test_partitions_leave_open_files_to_all_others(tmp_path: Path) -> None:
    files = SimulatedFiles()
    files.make_dir(DATA)
    options = EngineOptions(open_logs_max=4, checkpoint_interval_ms=10**9, retention_interval_ms=10**9)
    async with broker_on(files, tmp_path / "catalog.sqlite", options) as broker:
        await broker.create_topic("orders", partitions=3)
        with pytest.raises(TooManyPartitions, match="ulimit"):
            await broker.create_topic("more", partitions=2)
        with pytest.raises(TooManyPartitions):
            await broker.alter_topic("orders", partitions=5)
        await broker.alter_topic("orders", partitions=4)
        assert shown(broker) == {"orders": (4, {})}
        await broker.delete_topic("orders")
        await broker.create_topic("more", partitions=4)
    # A start opens what there is, whatever the limit.
    fewer = EngineOptions(open_logs_max=1, checkpoint_interval_ms=10**9, retention_interval_ms=10**9)
    async with broker_on(files, tmp_path / "catalog.sqlite", fewer) as broker:
        assert shown(broker) == {"more": (4, {})}


async def write(broker: Broker, topic: str) -> None:
    pending = broker.produce(topic, 0, bytearray(batch_of([b"x"])), acks=Acks.ALL)
    await pending.wait(60_000)


async def test_a_topic_of_the_longest_name_is_written_and_deleted_beside_others(tmp_path: Path) -> None:
    files = SimulatedFiles()
    files.make_dir(DATA)
    async with broker_on(files, tmp_path / "catalog.sqlite") as broker:
        for topic in (LONG, "other"):
            await broker.create_topic(topic, partitions=1)
            await write(broker, topic)
        await broker.delete_topic(LONG)
        assert directories(files) == {"other-0"}
        await write(broker, "other")
