"""What keeps uploads going, and what they must not take for their own; most of it is rare in the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID

import pytest
from stele.wire import record_batch as rb

from app.storage.embedded import EmbeddedEngine
from app.storage.replica.bucket import SEALED, Bucket
from app.storage.replica.chain import CutChain, Overtaken, cut_key
from app.storage.replica.cut import CutHeader, encode_cut
from app.storage.replica.marks import LogMark, mark_of
from app.storage.replica.options import ReplicaOptions
from app.storage.replica.replicator import Replicator
from app.storage.replica.retention import Retention
from app.storage.replica.segment_bytes import SegmentVanished
from app.storage.replica.segment_uploads import SegmentUploads
from app.storage.replica.state import ReplicaState
from app.storage.replica.status import ReplicaStatus
from app.storage.replica.store_images import CHUNK_BYTES, changed_chunks
from app.storage.replica.store_uploads import StoreSource
from app.storage.shared.store.object_store import Buffer, ByteRange, ObjectStoreError, StoredObject
from app.storage.topic_config import TopicConfig
from app.storage.topic_partition import TopicPartition
from tests.support.batches import batch_of, spec_of
from tests.support.engines import append, open_engine, segment_path
from tests.support.model_store import ModelStore
from tests.support.replicas.chain import read_cut, store_bytes
from tests.support.replicas.tables import SimulatedImages, SimulatedTable, rows_of
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import SimulatedClock, before, simulated

NAMES = [TopicPartition("orders", number) for number in range(3)]


class SlowStore(ModelStore):
    """Each PUT waits until it may be made."""

    def __init__(self) -> None:
        super().__init__()
        self.may_put = asyncio.Event()
        self.may_put.set()

    async def put(self, key: str, data: Buffer) -> None:
        await self.may_put.wait()
        await super().put(key, data)


class Uploading:
    """An engine with three partitions, and their uploads."""

    def __init__(self, files: SimulatedFiles, engine: EmbeddedEngine, options: ReplicaOptions) -> None:
        self.files = files
        self.engine = engine
        self.store = SlowStore()
        self.changes = engine.follow_changes()
        bucket = Bucket(
            self.store, incarnation=UUID(int=1), options=options, status=ReplicaStatus(url="model://")
        )
        self.uploads = SegmentUploads(bucket, ThreadPoolExecutor(1), options, is_open=self.changes.is_open)

    def marks(self) -> Sequence[LogMark]:
        return [mark_of(log) for log in self.changes.take() if self.changes.is_open(log)]


@asynccontextmanager
async def uploading(options: ReplicaOptions, config: TopicConfig | None = None) -> AsyncGenerator[Uploading]:
    files, clock = SimulatedFiles(), SimulatedClock()
    engine = await open_engine(
        files, [spec_of(name, clock=clock, config=config) for name in NAMES], clock=clock
    )
    yield Uploading(files, engine, options)
    await engine.close()


@simulated
async def test_uploads_that_were_cancelled_before_they_began_are_in_nobodys_way() -> None:
    async with uploading(ReplicaOptions(object_bytes=100, uploads=1)) as replica:
        for name in NAMES:
            append(replica.engine, b"x" * 80, name=name)
        marks = replica.marks()
        replica.files.unlink(segment_path(0, name=marks[0].log.topic_partition))
        with pytest.raises(SegmentVanished):
            await replica.uploads.upload(marks)
        await before(10, replica.uploads.upload(marks[1:]))


@simulated
async def test_bytes_of_another_topic_with_the_path_of_a_deleted_one_are_not_taken_for_its_own() -> None:
    async with uploading(ReplicaOptions(object_bytes=100, uploads=1)) as replica:
        for name in NAMES:
            append(replica.engine, b"x" * 80, name=name)
        marks = replica.marks()
        replica.store.may_put.clear()
        upload = asyncio.create_task(replica.uploads.upload(marks))
        await asyncio.sleep(1)
        deleted = marks[-1].log.topic_partition
        await replica.engine.drop([deleted])
        await replica.engine.create([spec_of(deleted, clock=SimulatedClock(), topic_id=UUID(int=2))])
        append(replica.engine, b"y" * 80, name=deleted)
        replica.store.may_put.set()
        with pytest.raises(SegmentVanished):
            await before(10, upload)


def copy(engine: EmbeddedEngine, *values: bytes) -> None:
    for value in values:
        batch = bytearray(batch_of([value]))
        rb.assign_offsets(batch, 0, engine.state(NAMES[0]).log_end_offset, 0)
        engine.append(NAMES[0], batch, [rb.read_header(batch)], sync=False, is_copy=True)


@simulated
async def test_bytes_of_a_copy_that_is_cut_back_meanwhile_are_not_taken_for_the_old_ones() -> None:
    config = TopicConfig(mirror="prod", segment_ms=1 << 50)
    async with uploading(ReplicaOptions(object_bytes=100, uploads=1), config) as replica:
        copy(replica.engine, *(b"a" * 80 for _ in range(6)))
        marks = replica.marks()
        replica.store.may_put.clear()
        upload = asyncio.create_task(replica.uploads.upload(marks))
        await asyncio.sleep(1)
        await replica.engine.cut_copy(NAMES[0], 1)
        copy(replica.engine, *(b"b" * 80 for _ in range(6)))
        replica.store.may_put.set()
        with pytest.raises(SegmentVanished):
            await before(10, upload)
        # The next cut has what is there now, and no more.
        (mark,) = replica.marks()
        await before(10, replica.uploads.upload([mark]))
        segments = replica.uploads.replica_of(mark).segments
        assert [one.next_offset for one in segments][-1] == 7
        assert [one.size for one in segments] == [segment.size for segment in mark.segments]


@simulated
async def test_a_run_does_not_end_within_a_batch() -> None:
    async with uploading(ReplicaOptions(object_bytes=100)) as replica:
        append(replica.engine, b"small", name=NAMES[0])
        append(replica.engine, b"x" * 500, name=NAMES[0])
        (mark,) = [mark for mark in replica.marks() if mark.log.topic_partition == NAMES[0]]
        await replica.uploads.upload([mark])
        (segment,) = replica.uploads.replica_of(mark).segments
        assert [run.base_offset for run in segment.runs] == [0, 1]
        assert segment.size == mark.active_size


@simulated
async def test_damage_that_recovery_has_left_is_uploaded_as_it_is() -> None:
    async with uploading(ReplicaOptions(object_bytes=100)) as replica:
        for _ in range(2):
            append(replica.engine, b"x" * 500, name=NAMES[0])
        content = replica.files.content(segment_path(0, name=NAMES[0]))
        # The magic byte of the first batch, whose length is still there.
        content[16] = 255
        (mark,) = [mark for mark in replica.marks() if mark.log.topic_partition == NAMES[0]]
        await replica.uploads.upload([mark])
        (segment,) = replica.uploads.replica_of(mark).segments
        objects = replica.store.objects
        uploaded = [objects[run.object][run.position : run.position + run.length] for run in segment.runs]
        assert b"".join(uploaded) == content[: mark.active_size]


@simulated
async def test_a_sealed_segment_is_written_once_though_cuts_find_it_in_parts_meanwhile() -> None:
    config = TopicConfig(segment_bytes=200)
    async with uploading(ReplicaOptions(), config) as replica:
        for _ in range(2):
            append(replica.engine, b"x" * 150, name=NAMES[0])
        (mark,) = [mark for mark in replica.marks() if mark.log.topic_partition == NAMES[0]]
        await replica.uploads.upload([mark])
        replica.uploads.replica_of(mark)
        replica.store.may_put.clear()
        writing = asyncio.create_task(replica.uploads.next_sealed())
        await asyncio.sleep(1)
        replica.uploads.replica_of(mark)
        replica.store.may_put.set()
        await before(10, writing)
        with pytest.raises(TimeoutError):
            await before(10, replica.uploads.next_sealed())
        assert sum(key.startswith(f"{SEALED}/") for key in replica.store.objects) == 1


@asynccontextmanager
async def replicating(store: ModelStore, tables: Sequence[SimulatedTable] = ()) -> AsyncGenerator[Replicator]:
    """Give a replica of three partitions and of ``tables``, which is not open yet."""
    files, clock = SimulatedFiles(), SimulatedClock()
    engine = await open_engine(files, [spec_of(name, clock=clock) for name in NAMES], clock=clock)
    replica = Replicator(
        store,
        url="model://",
        cluster_id="c",
        incarnation=UUID(int=1),
        leader_epoch=lambda: 1,
        changes=engine.follow_changes(),
        stores=[StoreSource(SimulatedImages(table), table.submit) for table in tables],  # type: ignore[arg-type]
        clock=clock,
        options=ReplicaOptions(),
    )
    yield replica
    await replica.close()
    await engine.close()


@simulated
async def test_a_store_that_begins_after_another_one_has_failed_is_in_the_next_cut() -> None:
    store, random = ModelStore(), Random(1)
    tables = [SimulatedTable(name, random) for name in ("one", "two")]
    async with replicating(store, tables) as replica:
        tables[0].locked = 1.0
        for number in range(2_000):
            # It begins long after the other one has failed.
            tables[1].write(f"row {number % 5}", number)
        await replica.open()
        await asyncio.sleep(0.5)
        tables[0].locked = 0.0
        await asyncio.sleep(60)
        cut = read_cut(store.objects["c/000000000000"], None)
        assert rows_of(store_bytes(cut.stores["two"], store.objects.get)) == tables[1].rows


def test_the_last_chunk_of_a_file_that_has_become_shorter_is_another_one() -> None:
    assert list(changed_chunks(bytes(2 * CHUNK_BYTES), bytes(CHUNK_BYTES + 100))) == [1]


# ── retention beside another broker ──


def header(sequence: int, time_ms: int, base: int | None = None) -> CutHeader:
    return CutHeader(
        sequence=sequence,
        base=sequence if base is None else base,
        generation=1,
        time_ms=time_ms,
        cluster_id="c",
        incarnation="i",
        leader_epoch=0,
    )


async def retention_of(store: ModelStore, cuts: int, *, base: int | None = None) -> Retention:
    options = ReplicaOptions()
    bucket = Bucket(store, incarnation=UUID(int=1), options=options, status=ReplicaStatus(url="model://"))
    chain = CutChain(store)
    for sequence in range(cuts):
        await chain.append(sequence, encode_cut(header(sequence, 1_000 * sequence, base), ()))
    retention = Retention(bucket, chain, 1_000)
    retention.begin(await chain.sequences())
    return retention


@simulated
async def test_cuts_that_another_broker_has_deleted_do_not_end_a_replica() -> None:
    store = ModelStore()
    retention = await retention_of(store, 6)
    await CutChain(store).delete([0, 1, 2, 3])
    for _ in range(2):
        await retention.enforce(ReplicaState(), 4_500)
    assert retention.oldest_ms == 4_000


@simulated
async def test_a_damaged_cut_ends_no_replica_and_keeps_what_may_be_needed() -> None:
    for damaged, oldest_ms, kept in (([3], 2_000, [2, 3, 4, 5]), ([0, 1, 2, 3], 4_000, [0, 1, 2, 3, 4, 5])):
        store = ModelStore()
        retention = await retention_of(store, 6)
        for sequence in damaged:
            store.objects[cut_key(sequence)] = b"no cut"
        # The newest cut that is old enough is cut 3.
        await retention.enforce(ReplicaState(), 4_500)
        assert retention.oldest_ms == oldest_ms
        assert await CutChain(store).sequences() == kept


@simulated
async def test_a_cut_that_is_damaged_later_does_not_move_the_oldest_moment_back() -> None:
    store = ModelStore()
    retention = await retention_of(store, 6, base=0)
    await retention.enforce(ReplicaState(), 4_500)
    assert retention.oldest_ms == 3_000
    store.objects[cut_key(3)] = b"no cut"
    await retention.enforce(ReplicaState(), 4_500)
    assert retention.oldest_ms == 3_000


@simulated
async def test_a_broker_that_writes_nothing_finds_out_that_it_was_overtaken() -> None:
    store = ModelStore()
    retention = await retention_of(store, 3)
    await CutChain(store).append(3, encode_cut(header(3, 9_000), ()))
    with pytest.raises(Overtaken):
        await retention.enforce(ReplicaState(), 4_500)
    assert await CutChain(store).sequences() == [0, 1, 2, 3]


class Hurried(ModelStore):
    """Another broker goes on after a request for cuts, and keeps nothing but its own last cut.

    The first request of all fails, so a start looks at the bucket in the background.
    """

    def __init__(self, moment: str) -> None:
        super().__init__(
            {cut_key(number): encode_cut(header(number, 1_000 * number), ()) for number in range(2)}
        )
        self._moment: str | None = moment
        self._is_reached = False

    async def create(self, key: str, data: Buffer) -> bool:
        if not self._is_reached:
            self._is_reached = True
            raise ObjectStoreError("not yet")
        return await super().create(key, data)

    async def _passed(self, moment: str) -> None:
        if moment != self._moment:
            return
        self._moment, chain = None, CutChain(self)
        sequences = await chain.sequences()
        last = sequences[-1] + 1
        await chain.append(last, encode_cut(header(last, 1_000 * last), ()))
        await chain.delete(sequences)

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        page = await super().list_page(prefix, after=after)
        await self._passed(f"listed {prefix}")
        return page

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        found = await super().get_ranges(key, ranges)
        await self._passed(f"read {key}")
        return found


@simulated
async def test_a_start_goes_on_from_what_has_followed_the_cut_that_it_found() -> None:
    async with replicating(store := Hurried("listed c/")) as replica:
        await replica.open()
        await asyncio.sleep(10)
        assert replica.status.phase == "replicating"
        assert await CutChain(store).sequences() == [2, 3, 4], "its generation, and its first cut"


@simulated
async def test_a_start_that_another_one_follows_is_overtaken() -> None:
    # It has taken its generation when it looks for the base of that.
    async with replicating(Hurried(f"read {cut_key(1)}")) as replica:
        await replica.open()
        await asyncio.sleep(10)
        assert replica.status.phase == "overtaken"
        assert replica.status.problem == "another broker has written cut 3"
