"""What each micro-batch holds, asked of the reader itself as Spark's driver asks it; no JVM takes part."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
from stele import Client
from stele.broker_process import BrokerProcess

pytest.importorskip("pyspark", reason="pip install 'stele-broker[spark]'")
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from stele.spark.batch_reader import BatchReader, RangePartition
from stele.spark.offsets import from_json
from stele.spark.options import OptionError, Use
from stele.spark.parsing import parse_read_options
from stele.spark.schema import spark_schema
from stele.spark.stream_reader import StreamReader

Fill = Callable[..., None]
Make = Callable[..., StreamReader]


@pytest.fixture
def make(broker: BrokerProcess, topic: str) -> Iterator[Make]:
    made: list[StreamReader] = []

    def reader(**options: str) -> StreamReader:
        given = {"url": broker.binary_url, "subscribe": topic, "startingOffsets": "earliest", **options}
        given = {name: value for name, value in given.items() if value}
        columns = tuple((field.name, True) for field in spark_schema(include_headers=False))
        made.append(StreamReader(parse_read_options(given, Use.STREAM_READ), columns))
        return made[-1]

    yield reader
    for one in made:
        one.stop()


def test_a_limit_is_handed_to_spark_and_held(client: Client, topic: str, fill: Fill, make: Make) -> None:
    client.create_topic(topic, partitions=2)
    fill(topic, 100, partitions=2)
    reader = make(maxOffsetsPerTrigger="30")
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    end = reader.latestOffset(start, ReadMaxRows(30))
    assert from_json(end) == from_json({topic: {"0": 15, "1": 15}})
    assert reader.latestOffset(end, ReadMaxRows(30)) == {topic: {"0": 30, "1": 30}}
    # Trigger.Once takes everything, whatever the options say.
    assert reader.latestOffset(end, ReadAllAvailable()) == {topic: {"0": 100, "1": 100}}
    assert reader.reportLatestOffset() == {topic: {"0": 100, "1": 100}}


def test_a_least_is_waited_for_but_not_longer_than_the_delay(
    client: Client, topic: str, fill: Fill, make: Make
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    reader = make(minOffsetsPerTrigger="20")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMinRows(20)
    end = reader.latestOffset(start, ReadMinRows(20))
    assert from_json(end) == from_json(start)
    assert json.dumps(reader.latestOffset(end, ReadMinRows(20))) == json.dumps(end)
    fill(topic, 10, first=10)
    assert from_json(reader.latestOffset(end, ReadMinRows(20))) == from_json({topic: {"0": 20}})
    impatient = make(minOffsetsPerTrigger="2000", maxTriggerDelay="0ms")
    assert impatient.latestOffset(start, ReadMinRows(2000)) == {topic: {"0": 20}}


def test_a_run_with_an_end_does_not_wait_for_a_least(
    client: Client, topic: str, fill: Fill, make: Make
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    reader = make(minOffsetsPerTrigger="2000")
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadMinRows(2000))
    assert from_json(end) == from_json({topic: {"0": 10}})


def test_a_run_with_an_end_leaves_what_comes_later(
    client: Client, topic: str, fill: Fill, make: Make
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    reader = make()
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    fill(topic, 10, first=10)
    client.alter_topic(topic, partitions=2)
    fill(topic, 10, partitions=2)
    end = reader.latestOffset(start, ReadAllAvailable())
    assert from_json(end) == from_json({topic: {"0": 10}})
    # The same text, or Spark would run a micro-batch without rows.
    assert json.dumps(reader.latestOffset(end, ReadAllAvailable())) == json.dumps(end)
    # The checkpoint of a run before may hold a partition that this reader has not seen begin.
    assert reader.latestOffset({topic: {"0": 10, "1": 4}}, ReadAllAvailable()) == {topic: {"0": 10, "1": 4}}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "latest"}, 10),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingTimestamp": str(2**42), "startingOffsetsByTimestampStrategy": "latest"}, 10),
        ({"subscribePattern": "{topic}-l.*", "subscribe": "", "startingOffsets": "latest"}, 0),
    ],
)
def test_a_repeated_first_micro_batch_begins_where_the_query_did(
    client: Client, topic: str, fill: Fill, make: Make, options: dict[str, str], first: int
) -> None:
    """Spark keeps the end of a micro-batch in the checkpoint, and asks again where the first one begins."""
    given = {name: value.format(topic=topic) for name, value in options.items()}
    late = f"{topic}-late" if "subscribePattern" in given else topic
    client.create_topic(topic, partitions=1)
    fill(topic, 10)
    reader = make(**given)
    start = reader.initialOffset()
    if late != topic:
        client.create_topic(late, partitions=1)
    fill(late, 5)
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = reader.partitions(start, end)
    assert [(part.range.start, part.range.end) for part in planned if isinstance(part, RangePartition)] == [
        (first, first + 5 if first or late != topic else 15)
    ]
    fill(late, 5)
    restarted = make(**given)
    again = restarted.initialOffset()
    assert restarted.partitions(again, json.loads(json.dumps(end))) == planned
    following = restarted.latestOffset(json.loads(json.dumps(end)), ReadAllAvailable())
    assert [
        part.range.start for part in restarted.partitions(end, following) if isinstance(part, RangePartition)
    ] == [
        planned[0].range.end  # pyright: ignore[reportAttributeAccessIssue]
    ]


def test_the_same_micro_batch_is_split_in_the_same_way_and_an_empty_one_has_no_tasks(
    client: Client, topic: str, fill: Fill, make: Make
) -> None:
    client.create_topic(topic, partitions=2)
    fill(topic, 100, partitions=2)
    reader, again = make(minPartitions="5"), make(minPartitions="5")
    start, end = {topic: {"0": 10, "1": 90}}, {topic: {"0": 100, "1": 100}}
    planned = reader.partitions(start, end)
    ranges = [p.range for p in planned if isinstance(p, RangePartition)]
    assert ranges == [p.range for p in again.partitions(start, end) if isinstance(p, RangePartition)]
    assert sum(r.size for r in ranges) == 100
    assert reader.partitions(end, end) == []


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_lost_records_are_reported_where_the_query_continues(
    client: Client, topic: str, fill: Fill, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic(topic, partitions=1, configs={"stele.storage": "memory", "stele.memory.records": 50})
    fill(topic, 200)
    reader = make(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, logger="stele.spark"):
        (planned,) = reader.partitions({topic: {"0": 100}}, {topic: {"0": 200}})
        assert isinstance(planned, RangePartition)
        assert (planned.range.start, planned.range.end) == (150, 200)
        assert sum(len(batch) for batch in reader.read(planned)) == 50
    assert caplog.messages == [
        f"50 records of {topic}-0 are lost to this query: offsets 100 to 149 are no longer in the log. "
        "Retention deleted them, or the topic was deleted or truncated. The query continues without them, "
        "because failOnDataLoss is false"
    ]


@pytest.mark.one_broker("shared storage has no topics in memory")
def test_what_is_lost_while_a_task_reads_is_stepped_over_too(
    client: Client, topic: str, fill: Fill, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_topic(topic, partitions=1, configs={"stele.storage": "memory", "stele.memory.records": 50})
    fill(topic, 50)
    reader = make(failOnDataLoss="false")
    (planned,) = reader.partitions({topic: {"0": 0}}, {topic: {"0": 50}})
    fill(topic, 30, first=50)
    with caplog.at_level(logging.WARNING, logger="stele.spark"):
        found = [offset for batch in reader.read(planned) for offset in batch.column(4).to_pylist()]
    assert found == list(range(30, 50))
    assert "offsets 0 to 29" in caplog.text


def test_planning_takes_as_many_round_trips_for_many_partitions_as_for_one(
    client: Client, topic: str, fill: Fill, make: Make
) -> None:
    trips: list[int] = []
    for partitions in (1, 50):
        name = f"{topic}-{partitions}"
        client.create_topic(name, partitions=partitions)
        fill(name, 2, partitions=partitions)
        offsets = json.dumps({name: {str(number): 1 for number in range(partitions)}})
        reader = make(subscribe=name, startingOffsets=offsets)
        transport = reader._broker.client.transport
        with patch.object(
            type(transport), "call_all", autospec=True, side_effect=type(transport).call_all
        ) as calls:
            start = reader.initialOffset()
            assert len(reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))) == partitions
        trips.append(calls.call_count)

    assert trips[0] == trips[1]


def test_a_pattern_matches_no_internal_topics(
    broker: BrokerProcess, client: Client, topic: str, fill: Fill, make: Make
) -> None:
    for name in (topic, f"__{topic}"):
        client.create_topic(name, partitions=1)
        fill(name, 1)
    options = {"url": broker.binary_url, "subscribePattern": f".*{topic}", "startingOffsets": "earliest"}
    by_pattern = StreamReader(parse_read_options(options, Use.STREAM_READ), ())

    assert by_pattern.initialOffset() == {topic: {"0": 0}}
    by_pattern.stop()
    assert make(subscribe=f"__{topic}").initialOffset() == {f"__{topic}": {"0": 0}}


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_past_the_end_is_refused_with_the_end(
    broker: BrokerProcess, client: Client, topic: str, fill: Fill, option: str
) -> None:
    client.create_topic(topic, partitions=1)
    fill(topic, 3)
    options = {"url": broker.binary_url, "subscribe": topic, option: json.dumps({topic: {"0": 4}})}
    reader = BatchReader(parse_read_options(options, Use.BATCH_READ), ())

    with pytest.raises(OptionError, match=f"{option} has offset 4 for {topic}-0, but its log ends at 3"):
        reader.partitions()
