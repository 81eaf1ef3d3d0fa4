"""The stream reader, whose micro-batches are offset ranges.

One object in the driver plans the micro-batches of a query; the executors read the
records as in a batch. The only state is the offsets that Spark keeps in the checkpoint: a
repeated micro-batch has the same ranges, split among tasks in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ..records import TopicPartition
from .batch_reader import Columns, RangeReader, task_partitions
from .fetching import Broker, report_cut, report_loss
from .offsets import (
    OffsetRange,
    Offsets,
    OffsetsJson,
    beginning_of,
    from_json,
    limited,
    ranges,
    to_json,
    with_beginning,
)
from .options import ReadOptions
from .planning import start_offsets

if TYPE_CHECKING:
    from ..wire.arrow_types import RecordBatch
    from .decoding import Decoding


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver, and reads their ranges in the executors."""

    def __init__(self, options: ReadOptions, columns: Columns, decoding: Decoding | None = None) -> None:
        self._options = options
        self._ranges = RangeReader(options, columns, decoding)
        # Created on first use, because Spark pickles the reader for the executors.
        self._connected: Broker | None = None
        # The log ends at the start of a Trigger.AvailableNow, which no micro-batch exceeds.
        self._target: Offsets | None = None
        self._seen_latest: Offsets = {}
        # Where a query without a checkpoint begins; None if there is one.
        self._beginning: Offsets | None = None
        self._released_s = time.monotonic()

    @property
    def _broker(self) -> Broker:
        if self._connected is None:
            self._connected = Broker(self._options.connection)
        return self._connected

    def initialOffset(self) -> OffsetsJson:  # noqa: N802 - Spark's name
        names = self._broker.partitions(self._options.selection)
        self._beginning = start_offsets(self._broker, self._options, names)
        return to_json(self._beginning)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        # Spark accepts one limit of a Python source; latestOffset applies the minimum.
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._latest()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> OffsetsJson:  # noqa: N802 - Spark's name
        begin = from_json(start)
        end = self._end(begin, limit)
        if begin == self._beginning:
            return with_beginning(to_json(end), begin)
        # Spark compares the text, which may still have the beginning.
        return dict(start) if end == begin else to_json(end)

    def _end(self, begin: Offsets, limit: ReadLimit) -> Offsets:
        end = self._reachable(begin)
        known = {name: begin.get(name, 0) for name in end}
        waiting = sum(max(0, offset - known[name]) for name, offset in end.items())
        if self._must_wait(waiting, limit):
            return begin
        if waiting:
            self._released_s = time.monotonic()
        return limited(known, end, limit.max_rows) if isinstance(limit, ReadMaxRows) else end

    def _latest(self) -> Offsets:
        # _reachable reports a deleted topic that the query has read.
        names = self._broker.partitions(self._options.selection, skip_missing=True)
        self._seen_latest = self._broker.latest(names)
        return self._seen_latest

    def _reachable(self, begin: Offsets) -> Offsets:
        """Return the log end, or the target if there is one, of each existing partition."""
        latest = self._latest()
        fail = self._options.fail_on_data_loss
        for name, offset in begin.items():
            if name not in latest:
                report_cut(name.topic, name.partition, offset, None, fail=fail)
            elif latest[name] < offset:
                report_cut(name.topic, name.partition, offset, latest[name], fail=fail)
        if self._target is None:
            return latest
        # Partitions that were added later wait for the next run.
        target = self._target
        return {
            name: min(offset, max(target.get(name, 0), begin.get(name, 0)))
            for name, offset in latest.items()
            if name in target or name in begin
        }

    def _must_wait(self, waiting: int, limit: ReadLimit) -> bool:
        least = self._options.min_offsets_per_trigger
        # AvailableNow has an end with possibly fewer records; Trigger.Once reads everything.
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        delay_s = time.monotonic() - self._released_s
        return waiting < least and delay_s * 1000 < self._options.max_trigger_delay_ms

    def reportLatestOffset(self) -> OffsetsJson | None:  # noqa: N802 - Spark's name
        return to_json(self._seen_latest) if self._seen_latest else None

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        until = from_json(end)
        # The start of a repeated first micro-batch is where a query would begin now.
        beginning = beginning_of(end)
        begin = from_json(start) if beginning is None else beginning
        # A partition that was added while the query ran is read from its first record.
        planned = ranges({name: begin.get(name, 0) for name in until}, until)
        earliest = self._broker.earliest(TopicPartition(r.topic, r.partition) for r in planned)
        return task_partitions([self._still_there(r, earliest) for r in planned], self._options)

    def _still_there(self, planned: OffsetRange, earliest: Offsets) -> OffsetRange:
        """Return ``planned`` without deleted records; reported here once, not in every task.

        The task reports a partition that does not exist.
        """
        low = earliest.get(TopicPartition(planned.topic, planned.partition), 0)
        if low <= planned.start:
            return planned
        start = min(low, planned.end)
        report_loss(
            planned.topic, planned.partition, planned.start, start, fail=self._options.fail_on_data_loss
        )
        return OffsetRange(topic=planned.topic, partition=planned.partition, start=start, end=planned.end)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self._ranges.read(partition)

    def stop(self) -> None:
        if self._connected is not None:
            self._connected.client.close()
