"""The state of a replica knows at any time how many bytes its objects have, without looking at all of them."""

from __future__ import annotations

import random

import pytest

from app.storage.replica.cut import (
    Change,
    ChunkSpan,
    Cut,
    CutHeader,
    Deleted,
    PartitionChange,
    PartitionGone,
    RunSpan,
    SegmentRuns,
    StoreChange,
)
from app.storage.replica.state import ReplicaState
from app.storage.shared.store.object_keys import size_of

_PARTITIONS = 4


def header(sequence: int, base: int) -> CutHeader:
    return CutHeader(
        sequence=sequence,
        base=base,
        generation=1,
        time_ms=sequence,
        cluster_id="c",
        incarnation="i",
        leader_epoch=0,
    )


def object_key(kind: str, number: int, size: int) -> str:
    return f"{kind}/6f1a2c1e-5a53-4a57-9d26-5b0c9f6a7a01/{number:012d}.{size}"


def partition(number: int, *objects: str) -> PartitionChange:
    """Return the change after which a partition has one segment, with a run in each of ``objects``."""
    runs = tuple(RunSpan(key, 8, 100, 0, offset) for offset, key in enumerate(objects))
    return PartitionChange(
        topic_id=f"topic-{number}",
        partition=0,
        topic="orders",
        log_start_offset=0,
        holes_until=0,
        epochs=(),
        kept_from=0,
        changed_from=0,
        segments=(SegmentRuns(0, len(runs), runs),),
    )


def sums(state: ReplicaState) -> tuple[int, int]:
    return sum(map(size_of, state.used)), sum(map(size_of, state.unused))


def random_change(rng: random.Random, number: int, state: ReplicaState) -> Change:
    kind = rng.random()
    if kind < 0.1:
        return PartitionGone(topic_id=f"topic-{rng.randrange(_PARTITIONS)}", partition=0)
    if kind < 0.2 and state.unused:
        return Deleted(objects=tuple(rng.sample(sorted(state.unused), rng.randint(1, len(state.unused)))))
    fresh = [object_key("d", 10 * number + at, rng.randint(1, 1000)) for at in range(rng.randint(1, 3))]
    if kind < 0.4:
        chunks = tuple(ChunkSpan(at, fresh[0], 10 * at, 10, 0) for at in range(rng.randint(1, 3)))
        return StoreChange(name="groups.sqlite", size=10 * len(chunks), chunk_bytes=10, chunks=chunks)
    used = sorted(state.used)
    return partition(rng.randrange(_PARTITIONS), *rng.sample(used, min(len(used), 2)), *fresh)


@pytest.mark.parametrize("seed", range(20))
def test_the_sums_are_those_of_the_objects_after_each_cut_and_after_a_base(seed: int) -> None:
    rng = random.Random(seed)
    state = ReplicaState()
    for sequence in range(60):
        state.apply(Cut(header(sequence, 0), [random_change(rng, sequence, state)]))
        assert (state.used_bytes, state.unused_bytes) == sums(state)
    assert state.used_bytes > 0
    assert state.unused_bytes > 0
    read = ReplicaState()
    read.apply(Cut(header(60, 60), list(state.changes())))
    assert (read.used_bytes, read.unused_bytes) == (state.used_bytes, state.unused_bytes)
    # A base begins again, whatever was known before it.
    read.apply(Cut(header(60, 60), list(state.changes())))
    assert (read.used_bytes, read.unused_bytes) == (state.used_bytes, state.unused_bytes)


def test_an_object_that_several_partitions_name_counts_once() -> None:
    state = ReplicaState()
    shared = object_key("d", 1, 500)
    state.apply(Cut(header(0, 0), [partition(0, shared), partition(1, shared)]))
    assert (state.used_bytes, state.unused_bytes) == (500, 0)
    state.apply(Cut(header(1, 0), [partition(0, object_key("d", 2, 70))]))
    assert (state.used_bytes, state.unused_bytes) == (570, 0)
    state.apply(Cut(header(2, 0), [PartitionGone(topic_id="topic-1", partition=0)]))
    assert (state.used_bytes, state.unused_bytes) == (70, 500)
    state.apply(Cut(header(3, 0), [Deleted(objects=(shared,))]))
    assert (state.used_bytes, state.unused_bytes) == (70, 0)


def test_an_object_whose_key_has_no_size_does_not_count() -> None:
    state = ReplicaState()
    state.apply(Cut(header(0, 0), [partition(0, "d/somewhere/1", object_key("d", 1, 500))]))
    assert state.used_bytes == 500
