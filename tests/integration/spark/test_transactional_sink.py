"""The transactions of a write, against a real broker and without Spark: attempts, drivers and their repetitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from stele import Client
from stele.broker_process import BrokerProcess
from stele.errors import InvalidRequestError, ProducerStateError

pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")
from stele.spark.options import Use, WriteOptions
from stele.spark.parsing import parse_write_options
from stele.spark.rows import SinkRow
from stele.spark.sending import Identity, TopicWriter
from stele.spark.transactions import (
    CommitError,
    TaskResult,
    TaskTransaction,
    WriteUnit,
    abort_results,
    commit_unit,
)

NOW_MS = 1_795_000_000_000
PARTITIONS = 2
TASKS = 3


@pytest.fixture
def options(broker: BrokerProcess) -> WriteOptions:
    return parse_write_options({"url": broker.binary_url}, Use.STREAM_WRITE)


def unit_of(topic: str, number: int = 0, *, query_id: str = "q") -> WriteUnit:
    return WriteUnit(kind="stream", application=f"app of {topic}", query_id=query_id, number=number)


def opened(options: WriteOptions, unit: WriteUnit, task: int, *, attempt: int = 0) -> TopicWriter:
    transaction = TaskTransaction(
        unit=unit,
        transactional_id=unit.task_id(partition=task, attempt=attempt),
        timeout_ms=options.transaction_timeout_ms,
    )
    return TopicWriter(options, transaction, task_partition=task)


def add(writer: TopicWriter, topics: Sequence[str], values: Sequence[bytes]) -> None:
    for topic in topics:
        for number, value in enumerate(values):
            row = SinkRow(topic, number % PARTITIONS, NOW_MS, None, value, [])
            writer.add(row, match_timestamp=False)
    writer.flush()


def write(
    options: WriteOptions, unit: WriteUnit, topics: Sequence[str], *, attempt: int = 0
) -> list[TaskResult]:
    """What each task of a unit writes, to all topics."""
    results: list[TaskResult] = []
    for task in range(TASKS):
        with opened(options, unit, task, attempt=attempt) as writer:
            add(writer, topics, values_of(unit, task))
            assert writer.result is not None
            results.append(writer.result)
    return results


def values_of(unit: WriteUnit, task: int) -> list[bytes]:
    return [b"%d-%d-%d" % (unit.number, task, row) for row in range(4)]


def all_of(unit: WriteUnit) -> list[bytes]:
    return sorted(value for task in range(TASKS) for value in values_of(unit, task))


def contents(client: Client, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for partition in range(PARTITIONS):
        end, offset = client.list_offset(topic, partition) or 0, 0
        while offset < end:
            page = client.fetch(topic, partition, offset)
            found += [record.value or b"" for record in page.records]
            offset = page.next_offset
    return sorted(found)


@pytest.fixture
def topics(client: Client, topic: str) -> list[str]:
    names = [f"{topic}.a", f"{topic}.b"]
    for name in names:
        client.create_topic(name, partitions=PARTITIONS)
    return names


def test_nothing_is_visible_before_the_commit_and_all_topics_after_it(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    unit = unit_of(topic)
    results = write(options, unit, topics)
    assert [contents(client, name) for name in topics] == [[], []]
    assert commit_unit(options, unit, results, partitions=TASKS)
    assert [contents(client, name) for name in topics] == [all_of(unit)] * 2
    following = unit_of(topic, 1)
    assert commit_unit(options, following, write(options, following, topics), partitions=TASKS)
    assert [contents(client, name) for name in topics] == [sorted(all_of(unit) + all_of(following))] * 2


def test_a_unit_that_is_repeated_is_not_written_twice(
    broker: BrokerProcess, options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    unit = unit_of(topic)
    commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    broker.kill()
    broker.start()
    assert not commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    assert [contents(client, name) for name in topics] == [all_of(unit)] * 2
    # Nothing of the repetition holds readers back.
    client.produce(topics[0], b"after", partition=0)
    assert b"after" in contents(client, topics[0])


def test_an_interrupted_unit_is_written_again_as_a_whole(
    broker: BrokerProcess, options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    """A driver died before the commit, and the broker with it; one task had a second attempt."""
    unit = unit_of(topic)
    write(options, unit, topics)
    write(options, unit, topics, attempt=1)
    broker.kill()
    broker.start()
    commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    assert [contents(client, name) for name in topics] == [all_of(unit)] * 2


def test_attempts_that_do_not_count_leave_nothing(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    unit = unit_of(topic)
    results = write(options, unit, topics)
    # A speculative attempt is still writing when the others are committed.
    with opened(options, unit, 0, attempt=1) as slow:
        add(slow, topics, [b"speculative"])
        commit_unit(options, unit, results, partitions=TASKS)
        with pytest.raises(ProducerStateError):
            add(slow, topics, [b"late"])
    with pytest.raises(RuntimeError, match="out of memory"):
        fail(options, unit, topics)
    assert [contents(client, name) for name in topics] == [all_of(unit)] * 2
    client.produce(topics[0], b"after", partition=0)
    assert b"after" in contents(client, topics[0])


def fail(options: WriteOptions, unit: WriteUnit, topics: Sequence[str]) -> None:
    with opened(options, unit, 1, attempt=2) as failed:
        add(failed, topics, [b"failed"])
        raise RuntimeError("out of memory")


def test_of_two_runs_that_do_the_same_micro_batch_one_commits_it(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    """The earlier one was thought dead; its attempts have the same numbers as those of the other."""
    unit, following = unit_of(topic), unit_of(topic, 1)
    of_zombie = write(options, unit, topics)
    assert commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    assert not commit_unit(options, unit, of_zombie, partitions=TASKS)
    assert [contents(client, name) for name in topics] == [all_of(unit)] * 2
    results = write(options, following, topics)
    assert commit_unit(options, following, write(options, following, topics), partitions=TASKS)
    assert not commit_unit(options, following, results, partitions=TASKS)
    assert [contents(client, name) for name in topics] == [sorted(all_of(unit) + all_of(following))] * 2


@pytest.mark.parametrize("how", ["fails", "ends", "stays"])
def test_an_attempt_that_begins_late_cannot_end_one_that_is_finished(
    options: WriteOptions, client: Client, topic: str, topics: list[str], how: str
) -> None:
    """A zombie has the number of a finished attempt: it belongs to another run, stage attempt or micro-batch.

    Its begin, its rows and its abort are its own.
    """
    zombie = opened(options, unit_of(topic), 0)
    unit = unit_of(topic, 1)
    results = write(options, unit, topics)
    add(zombie, topics, [b"zombie"])
    error = RuntimeError("killed") if how == "fails" else None
    if how != "stays":
        zombie.__exit__(None if error is None else RuntimeError, error, None)
    assert commit_unit(options, unit, results, partitions=TASKS)
    assert [contents(client, name) for name in topics] == [all_of(unit)] * 2
    if how == "stays":
        with zombie, pytest.raises(ProducerStateError):
            add(zombie, topics, [b"zombie"])
    # Its transaction is ended, too, so it holds no reader back.
    following = unit_of(topic, 2)
    assert commit_unit(options, following, write(options, following, topics), partitions=TASKS)
    assert [contents(client, name) for name in topics] == [sorted(all_of(unit) + all_of(following))] * 2


def test_the_ids_of_attempts_are_used_again(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    """However many micro-batches a query has: an id and its producer stay in the memory of the broker."""
    used: set[str] = set()
    for number in range(4):
        unit = unit_of(topic, number)
        results = write(options, unit, topics)
        used |= {result.transaction.transactional_id for result in results}
        assert commit_unit(options, unit, results, partitions=TASKS)
    assert len(used) == TASKS


def test_an_aborted_unit_leaves_nothing(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    unit = unit_of(topic)
    abort_results(options, write(options, unit, topics))
    client.produce(topics[0], b"after", partition=0)
    assert contents(client, topics[0]) == [b"after"]


def test_another_checkpoint_under_the_same_name_is_refused(
    options: WriteOptions, topic: str, topics: list[str]
) -> None:
    for number in range(2):
        unit = unit_of(topic, number)
        commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    for unit in (unit_of(topic, 0), unit_of(topic, 1, query_id="another")):
        with pytest.raises(CommitError, match="set another txnAppId"):
            commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)


def test_a_micro_batch_that_was_begun_without_transactions_is_refused(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    """The query was stopped within a micro-batch, and runs with transactions now."""
    unit = unit_of(topic, 3)
    plain = replace(options, transactional=False)
    # This one wrote nothing before it was stopped.
    TopicWriter(plain, Identity(name=unit.producer_name(0), version=3), task_partition=0).flush()
    commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    other = WriteUnit(kind="stream", application=topic, query_id="q", number=3)
    with TopicWriter(plain, Identity(name=other.producer_name(1), version=3), task_partition=1) as writer:
        add(writer, topics, [b"before"])
    with pytest.raises(CommitError, match="transactional=false"):
        commit_unit(options, other, write(options, other, topics), partitions=TASKS)
    assert contents(client, topics[0]) == sorted([*all_of(unit), b"before"])


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_a_topic_in_memory_is_refused(options: WriteOptions, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=PARTITIONS, configs={"stele.storage": "memory"})
    with opened(options, unit_of(topic), 0) as writer, pytest.raises(InvalidRequestError, match="in memory"):
        add(writer, [topic], [b"x"])


# ── writes that have one name and number, and are no repetitions of each other ──


def named(topic: str, target: str = "", *, number: int = 0) -> WriteUnit:
    """A batch write, as each write of a foreachBatch is, whose option ``topic`` is ``target``."""
    return WriteUnit(kind="batch", application=f"app of {topic}", query_id="", number=number, target=target)


def test_writes_to_different_topics_are_different_units(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    for number in range(2):
        for name in topics:
            unit = named(topic, name, number=number)
            assert commit_unit(options, unit, write(options, unit, [name]), partitions=TASKS)
    both = sorted(value for number in range(2) for value in all_of(named(topic, number=number)))
    assert [contents(client, name) for name in topics] == [both] * 2


def test_a_write_to_other_topics_by_a_column_is_no_repetition(
    options: WriteOptions, client: Client, topic: str, topics: list[str]
) -> None:
    unit = named(topic)
    assert commit_unit(options, unit, write(options, unit, topics[:1]), partitions=TASKS)
    with pytest.raises(CommitError, match=rf"rows for {topics[1]}: two writes have the same name and number"):
        commit_unit(options, unit, write(options, unit, topics), partitions=TASKS)
    assert [contents(client, name) for name in topics] == [all_of(unit), []]


def test_rows_that_are_left_out_are_counted_in_a_warning(
    options: WriteOptions, topic: str, topics: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    unit = named(topic, topics[0])
    assert commit_unit(options, unit, write(options, unit, topics[:1]), partitions=TASKS)
    assert not commit_unit(options, unit, write(options, unit, topics[:1]), partitions=TASKS)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "was committed before, with 12 rows; the 12 rows of its repetition are left out" in record.message
