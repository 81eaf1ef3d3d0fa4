"""A cut is input: names that lead elsewhere, sizes that do not add up and foreign objects are refused."""

from __future__ import annotations

import pytest

from app.storage.replica.cut import ChunkSpan, CorruptCut, RunSpan, SegmentRuns
from app.storage.replica.restore_plan import CatalogTopic, plan_partitions, plan_stores
from app.storage.replica.state import PartitionKey, PartitionReplica, ReplicaState, StoreReplica

ID = "00000000-0000-0000-0000-000000000001"
OBJECT = "d/00000000-0000-0000-0000-000000000007/000000000000.100"
RUN = RunSpan(OBJECT, 10, 20, 1, 0)
TOPIC = CatalogTopic(ID, "orders", 2)


def partition(*segments: SegmentRuns, topic: str = "orders", log_start_offset: int = 0) -> PartitionReplica:
    return PartitionReplica(
        topic=topic,
        log_start_offset=log_start_offset,
        holes_until=0,
        epochs=(),
        segments=list(segments or (SegmentRuns(0, 5, (RUN,)),)),
    )


def state_of(replica: PartitionReplica, number: int = 0, topic_id: str = ID) -> ReplicaState:
    return ReplicaState(partitions={PartitionKey(topic_id, number): replica})


def test_a_segment_is_its_runs_one_after_the_other() -> None:
    second = RunSpan(OBJECT, 50, 7, 2, 3)
    state = state_of(partition(SegmentRuns(0, 5, (RUN, second)), SegmentRuns(5, 5, ())))

    plan = plan_partitions(state, [TOPIC])

    assert [(piece.file.name, piece.at, piece.length, piece.crc) for piece in plan.pieces] == [
        ("orders-0/00000000000000000000.log", 0, 20, 1),
        ("orders-0/00000000000000000000.log", 20, 7, 2),
    ]
    assert [file.size for file in plan.partitions[0].files] == [27, 0]
    assert plan.size == 27


def test_deleted_segments_are_left_out() -> None:
    segments = [SegmentRuns(base, base + 5, (RUN,)) for base in (0, 5, 10)]

    plan = plan_partitions(state_of(partition(*segments, log_start_offset=7)), [TOPIC])

    assert [file.name[-10:] for file in plan.partitions[0].files] == ["000005.log", "000010.log"]


def test_partitions_of_topics_that_the_catalog_lacks_are_left_out() -> None:
    assert plan_partitions(state_of(partition()), []).partitions == []


@pytest.mark.parametrize(
    "name", ["../../etc", "..", ".", "a/b", "", "a" * 250, "/tmp", "a\x00", "a\n", "orders "]
)
def test_names_that_no_topic_has_are_refused(name: str) -> None:
    with pytest.raises(CorruptCut):
        plan_partitions(state_of(partition(topic=name)), [CatalogTopic(ID, name, 1)])


@pytest.mark.parametrize("topic_id", ["x", "../..", ID.upper().replace("0", "A"), ""])
def test_ids_that_no_topic_has_are_refused(topic_id: str) -> None:
    with pytest.raises(CorruptCut):
        plan_partitions(state_of(partition(), topic_id=topic_id), [CatalogTopic(topic_id, "orders", 1)])


@pytest.mark.parametrize("number", [-1, 2, 2**40])
def test_partitions_that_the_topic_lacks_are_refused(number: int) -> None:
    with pytest.raises(CorruptCut, match="is not one of topic 'orders'"):
        plan_partitions(state_of(partition(), number), [TOPIC])


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_log_starts_that_no_log_has_are_refused(offset: int) -> None:
    with pytest.raises(CorruptCut, match="begins at offset"):
        plan_partitions(state_of(partition(log_start_offset=offset)), [TOPIC])


def test_two_partitions_are_never_written_to_one_directory() -> None:
    other = "00000000-0000-0000-0000-000000000002"
    state = ReplicaState(partitions={PartitionKey(ID, 0): partition(), PartitionKey(other, 0): partition()})

    with pytest.raises(CorruptCut, match="two partitions are called orders-0"):
        plan_partitions(state, [TOPIC, CatalogTopic(other, "orders", 1)])


@pytest.mark.parametrize(
    "segments",
    [
        [SegmentRuns(5, 6, (RUN,)), SegmentRuns(0, 5, (RUN,))],
        [SegmentRuns(0, 9, (RUN,)), SegmentRuns(5, 10, (RUN,))],
        [SegmentRuns(0, 0, ()), SegmentRuns(0, 5, (RUN,))],
        [SegmentRuns(-1, 5, (RUN,))],
        [SegmentRuns(5, 4, (RUN,))],
        [SegmentRuns(0, 2**63, (RUN,))],
    ],
)
def test_segments_that_do_not_follow_each_other_are_refused(segments: list[SegmentRuns]) -> None:
    with pytest.raises(CorruptCut, match="do not follow each other"):
        plan_partitions(state_of(partition(*segments)), [TOPIC])


@pytest.mark.parametrize(
    "run",
    [
        RunSpan("../../etc/passwd", 0, 1, 0, 0),
        RunSpan("c/000000000001", 0, 1, 0, 0),
        RunSpan(OBJECT.replace("d/", "d/../"), 0, 1, 0, 0),
        RunSpan(OBJECT, -1, 5, 0, 0),
        RunSpan(OBJECT, 0, 0, 0, 0),
        RunSpan(OBJECT, 0, -5, 0, 0),
        RunSpan(OBJECT, 90, 11, 0, 0),
        RunSpan(OBJECT, 0, 2**60, 0, 0),
    ],
)
def test_bytes_that_no_object_has_are_refused(run: RunSpan) -> None:
    with pytest.raises(CorruptCut):
        plan_partitions(state_of(partition(SegmentRuns(0, 5, (run,)))), [TOPIC])


def test_a_store_is_its_chunks_one_after_the_other() -> None:
    chunks = [ChunkSpan(0, OBJECT, 0, 16, 1), ChunkSpan(1, OBJECT, 40, 4, 2)]
    state = ReplicaState(stores={"groups.sqlite": StoreReplica(size=20, chunk_bytes=16, chunks=chunks)})

    ((file, pieces),) = plan_stores(state, ["groups.sqlite"])

    assert (file.name, file.size) == ("groups.sqlite", 20)
    assert [(piece.at, piece.length, piece.position) for piece in pieces] == [(0, 16, 0), (16, 4, 40)]


@pytest.mark.parametrize(
    ("size", "lengths"), [(20, [16, 5]), (20, [16, 3]), (21, [16, 4]), (20, [16]), (16, [16, 4])]
)
def test_chunks_that_do_not_add_up_are_refused(size: int, lengths: list[int]) -> None:
    chunks = [ChunkSpan(number, OBJECT, 0, length, 1) for number, length in enumerate(lengths)]
    state = ReplicaState(stores={"groups.sqlite": StoreReplica(size=size, chunk_bytes=16, chunks=chunks)})

    with pytest.raises(CorruptCut):
        plan_stores(state, ["groups.sqlite"])


def test_a_cut_without_a_store_is_refused() -> None:
    with pytest.raises(CorruptCut, match=r"the cut has no groups\.sqlite"):
        plan_stores(ReplicaState(), ["groups.sqlite"])
