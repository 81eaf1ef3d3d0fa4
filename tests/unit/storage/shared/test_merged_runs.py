"""Readers find their way in merged objects, which are longer than what one read loads."""

from __future__ import annotations

from random import Random

import pytest

from app.errors import CorruptLog
from app.storage.shared.options import SharedOptions
from app.storage.shared.runs.sparse_index import INTERVAL_BYTES, SparseIndexBuilder, find
from app.storage.shared.upkeep import UpkeepOptions
from tests.support.batches import ORDERS
from tests.support.engines import append, append_synced, open_shared_engine, read_batches, read_from, read_one
from tests.support.model_meta import ModelMeta
from tests.support.simulated_time import SimulatedClock, simulated
from tests.support.storage_faults import ModelStore

OPTIONS = SharedOptions(
    linger_ms=10,
    object_bytes=50_000,
    upkeep=UpkeepOptions(is_enabled=False, merge_min_bytes=1, merge_min_age_ms=0),
)


def test_the_sparse_index_finds_the_last_entry_at_or_before_an_offset() -> None:
    builder = SparseIndexBuilder()
    starts = [(offset, offset * 1_000) for offset in range(0, 1_000, 3)]
    for offset, position in starts:
        builder.add(offset, position)
    index = builder.build()
    for offset in range(1_000):
        found, position = find(index, offset)
        assert (found, position) in starts
        assert found <= offset
        assert offset * 1_000 - position < INTERVAL_BYTES + 3_000
    assert find(b"", 5) == (0, 0)


@simulated
async def test_a_merged_run_is_read_from_each_offset_within_each_limit() -> None:
    meta, store = ModelMeta(SimulatedClock().now_ms), ModelStore()
    engine = await open_shared_engine(meta, store, 1, OPTIONS)
    random = Random(1)
    values = [random.randbytes(random.choice((10, 1_000, 5_000))) for _ in range(300)]
    for value in values:
        append(engine, value)
    await engine.flush()
    before = await read_from(engine, 0)
    assert before == list(enumerate(values))
    assert await engine.upkeep.merge_one() is True
    (run,) = meta.runs_of[1]
    assert run.is_merged
    assert len(run.sparse_index) > 8
    other = await open_shared_engine(meta, store, 2, OPTIONS)
    for _ in range(100):
        offset, limit = random.randrange(300), random.choice((1, 3_000, 100_000, 1 << 20))
        raw = await read_batches(other, offset, max_bytes=limit)
        assert (await read_one(other, offset))[0] == (offset, values[offset])
        assert len(raw) <= max(limit, 5_100)
    assert await read_from(other, 0, max_bytes=70_000) == before
    for reader in (engine, other):
        await reader.close()


@simulated
async def test_a_flipped_bit_in_an_object_is_an_error_that_names_the_object() -> None:
    meta, store = ModelMeta(SimulatedClock().now_ms), ModelStore()
    engine = await open_shared_engine(meta, store, 1, OPTIONS)
    await append_synced(engine, b"x" * 100)
    await append_synced(engine, b"y")
    key = min(store.objects)
    damaged = bytearray(store.objects[key])
    damaged[100] ^= 1
    store.objects[key] = bytes(damaged)
    other = await open_shared_engine(meta, store, 2, OPTIONS)
    with pytest.raises(CorruptLog) as error:
        await read_batches(other, 0)
    assert key in str(error.value)
    assert error.value.next_offset == 1
    assert (await read_one(other, 1))[0] == (1, b"y")
    assert await other.upkeep.merge_one() is False, "damaged bytes are not copied"
    for reader in (engine, other):
        await reader.close()


@simulated
async def test_a_reader_whose_object_is_gone_plans_again() -> None:
    meta, store = ModelMeta(SimulatedClock().now_ms), ModelStore()
    engine = await open_shared_engine(meta, store, 1, OPTIONS)
    for value in (b"a", b"b"):
        await append_synced(engine, value)
    old = set(store.objects)
    other = await open_shared_engine(meta, store, 2, OPTIONS)
    await other.refresh([ORDERS])
    # What is left of a plan that is older than the merge.
    for run in meta.runs_of[1]:
        other.log(ORDERS).note_run(run, 0)
    assert await engine.upkeep.merge_one() is True
    await store.delete(sorted(old))
    assert await read_from(other, 0) == [(0, b"a"), (1, b"b")]
    for reader in (engine, other):
        await reader.close()
