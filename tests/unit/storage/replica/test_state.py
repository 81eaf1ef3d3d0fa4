"""The state after a chain of cuts is that of the last one, whichever cuts are bases."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.replica.cut import (
    Change,
    ChunkSpan,
    CorruptCut,
    Cut,
    CutHeader,
    PartitionGone,
    RunSpan,
    SegmentRuns,
    StoreChange,
)
from app.storage.replica.state import PartitionKey, PartitionReplica, ReplicaState, change_of

KEYS = [PartitionKey("a", 0), PartitionKey("a", 1), PartitionKey("b", 0)]


def header(sequence: int, base: int, time_ms: int | None = None) -> CutHeader:
    return CutHeader(
        sequence=sequence,
        base=base,
        generation=1,
        time_ms=sequence if time_ms is None else time_ms,
        cluster_id="c",
        incarnation="i",
        leader_epoch=0,
    )


# Few objects, so that cuts share them, and segments are often the same.
_RUN = st.builds(
    RunSpan, st.sampled_from("xyz"), st.just(0), st.integers(1, 2), st.just(0), st.integers(0, 3)
)


@st.composite
def partitions(draw: st.DrawFn) -> PartitionReplica | None:
    if draw(st.integers(0, 5)) == 0:
        return None
    bases = sorted(draw(st.sets(st.integers(0, 6), min_size=1)))
    segments = [SegmentRuns(base, base + 1, tuple(draw(st.lists(_RUN, max_size=2)))) for base in bases]
    return PartitionReplica(
        topic="t",
        log_start_offset=draw(st.integers(0, 2)),
        holes_until=draw(st.integers(0, 1)),
        epochs=((0, 0),),
        segments=segments,
    )


@given(st.lists(st.tuples(st.booleans(), *(partitions() for _ in KEYS)), min_size=1, max_size=8))
def test_a_fold_over_cuts_is_what_the_last_one_was_made_of(
    states: list[tuple[bool, PartitionReplica | None, PartitionReplica | None, PartitionReplica | None]],
) -> None:
    state, read, base = ReplicaState(), ReplicaState(), 0
    for sequence, (is_base, *wanted) in enumerate(states):
        changes: list[Change] = []
        for key, replica in zip(KEYS, wanted, strict=True):
            known = state.partitions.get(key)
            if replica is None:
                if known is not None:
                    changes.append(PartitionGone(topic_id=key.topic_id, partition=key.partition))
            elif (change := change_of(known, key, replica)) is not None:
                changes.append(change)
        base = sequence if is_base or not sequence else base
        for change in changes:
            state.apply_change(change, sequence)
        state.header = header(sequence, base)
        read.apply(Cut(state.header, list(state.changes()) if base == sequence else changes))
        there = {key: one for key, one in zip(KEYS, wanted, strict=True) if one is not None}
        assert read.partitions == state.partitions == there
        names = Counter(
            run.object for one in there.values() for segment in one.segments for run in segment.runs
        )
        assert set(read.used) == set(state.used) == set(names)
        assert read.unused == state.unused
        assert not names.keys() & read.unused.keys()


def test_a_partition_that_is_the_same_makes_no_change() -> None:
    replica = PartitionReplica(
        topic="t", log_start_offset=0, holes_until=0, epochs=(), segments=[SegmentRuns(0, 1, ())]
    )
    same = PartitionReplica(
        topic="t", log_start_offset=0, holes_until=0, epochs=(), segments=[SegmentRuns(0, 1, ())]
    )
    assert change_of(replica, KEYS[0], same) is None


def test_a_change_names_no_segment_that_stays() -> None:
    runs = count()
    segments = [
        SegmentRuns(base, base + 10, (RunSpan(f"{next(runs)}", 0, 1, 0, base),)) for base in range(0, 50, 10)
    ]

    def replica(segments: list[SegmentRuns]) -> PartitionReplica:
        return PartitionReplica(topic="t", log_start_offset=0, holes_until=0, epochs=(), segments=segments)

    grown = SegmentRuns(40, 60, (*segments[-1].runs, RunSpan("new", 0, 1, 0, 50)))
    change = change_of(replica(segments), KEYS[0], replica([*segments[1:-1], grown]))
    assert change is not None
    assert (change.kept_from, change.changed_from, change.segments) == (10, 40, (grown,))


def test_an_object_is_unused_from_the_cut_on_that_no_longer_names_it() -> None:
    state = ReplicaState()
    state.apply(Cut(header(0, 0), [store(4, ("x", 0), ("y", 1))]))
    state.apply(Cut(header(1, 0, 100), [store(4, ("z", 0))]))
    assert (set(state.used), state.unused) == ({"y", "z"}, {"x": 100})
    state.apply(Cut(header(2, 0, 200), [store(2)]))
    assert (set(state.used), state.unused) == ({"z"}, {"x": 100, "y": 200})


def store(size: int, *chunks: tuple[str, int]) -> StoreChange:
    return StoreChange(
        name="s",
        size=size,
        chunk_bytes=2,
        chunks=tuple(ChunkSpan(number, key, 0, 2, 0) for key, number in chunks),
    )


def test_a_store_without_all_of_its_chunks_is_refused() -> None:
    with pytest.raises(CorruptCut, match="chunk 1 of s is missing"):
        ReplicaState().apply(Cut(header(0, 0), [store(4, ("x", 0))]))


@pytest.mark.parametrize("sequence", [0, 1, 3])
def test_a_cut_that_does_not_follow_is_refused(sequence: int) -> None:
    state = ReplicaState()
    state.apply(Cut(header(1, 1), []))
    with pytest.raises(CorruptCut, match=f"cut {sequence} does not follow"):
        state.apply(Cut(header(sequence, -1), []))


def test_a_segment_that_went_between_two_others_is_not_kept() -> None:
    # Compaction has removed all of its records, and the segment before it is as it was.
    first, merged, last = (SegmentRuns(base, base + 1, (RunSpan("x", 0, 1, 0, base),)) for base in (0, 1, 2))

    def replica(*segments: SegmentRuns) -> PartitionReplica:
        return PartitionReplica(
            topic="t", log_start_offset=0, holes_until=2, epochs=((0, 0),), segments=list(segments)
        )

    state = ReplicaState()
    change = change_of(None, KEYS[0], replica(first, merged, last))
    assert change is not None
    state.apply(Cut(header(0, 0), [change]))
    change = change_of(state.partitions[KEYS[0]], KEYS[0], replica(first, last))
    assert change is not None
    state.apply(Cut(header(1, 0), [change]))
    assert state.partitions[KEYS[0]].segments == [first, last]
