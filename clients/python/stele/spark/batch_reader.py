"""The batch reader, whose offset ranges are fixed when Spark plans the query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from .fetching import Broker
from .offsets import OffsetRange, ranges, split
from .options import ReadOptions
from .planning import end_offsets, start_offsets

if TYPE_CHECKING:
    from ..wire.arrow_types import RecordBatch
    from .decoding import Decoding

Columns = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePartition(InputPartition):
    """The range that one task reads."""

    range: OffsetRange


@dataclass(frozen=True, slots=True)
class RangeReader:
    """Reads ranges in the executors, without state: each ``read`` has its own connection."""

    options: ReadOptions
    columns: Columns
    decoding: Decoding | None = None

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        # Spark passes InputPartition(None) if there is nothing to read.
        if isinstance(partition, RangePartition):
            yield from self._read(partition.range)

    def _read(self, wanted: OffsetRange) -> Iterator[RecordBatch]:
        from ..wire.arrow import Decoder, arrow_schema_of

        options, decoding = self.options, self.decoding
        columns = self.columns if decoding is None else decoding.raw_columns
        decoder = Decoder(topic=wanted.topic, partition=wanted.partition, schema=arrow_schema_of(columns))
        with Broker(options.connection) as broker:
            fetched = broker.read(
                wanted, fetch_bytes=options.fetch_bytes, fail_on_data_loss=options.fail_on_data_loss
            )
            rows = (rows for batches, start in fetched for rows in decoder.decode(batches, start, wanted.end))
            place = f"{wanted.topic}-{wanted.partition}"
            yield from rows if decoding is None else decoding.decode(rows, broker, place)


class BatchReader(DataSourceReader):
    """Plans the ranges in the driver; ``latest`` is the log end at that moment."""

    def __init__(self, options: ReadOptions, columns: Columns, decoding: Decoding | None = None) -> None:
        self._options = options
        self._ranges = RangeReader(options, columns, decoding)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with Broker(options.connection) as broker:
            names = broker.partitions(options.selection)
            start = start_offsets(broker, options, names)
            end = end_offsets(broker, options, names)
        return task_partitions(ranges(start, end), options)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return self._ranges.read(partition)


def task_partitions(whole: list[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    parts = split(
        whole,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [RangePartition(range=part) for part in parts]
