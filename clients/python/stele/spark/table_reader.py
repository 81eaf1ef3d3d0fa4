"""The reader of tables: the newest record per key, as of the log end when Spark plans the query.

Compaction may remove a record of that table while a task reads it, because of a newer
one after the end. The broker then returns the records after the end too (``TableFetch``).
So a task stores all pages in a temporary file before its first row, and leaves out the
rows that the records after the end replace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..operations.tables import RawTableFetch
from ..wire.record_batch import decode_records, iter_headers
from .batch_reader import Columns
from .fetching import Broker
from .options import OptionError, ReadOptions

if TYPE_CHECKING:
    from ..wire.arrow_types import RecordBatch
    from .decoding import Decoding

# A smaller table stays in memory.
_MEMORY_BYTES = 32 * 1024 * 1024

# The newest record per key after the end: its offset, or None if it is a tombstone.
Replaced = dict[bytes, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePartition(InputPartition):
    """The partition that one task reads; ``end`` is the log end at the planning."""

    topic: str
    partition: int
    end: int


class TableReader(DataSourceReader):
    """Plans one task per partition in the driver, and reads it in an executor."""

    def __init__(self, options: ReadOptions, columns: Columns, decoding: Decoding | None = None) -> None:
        self._options = options
        self._columns = columns if decoding is None else decoding.raw_columns
        self._decoding = decoding

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Raises ``OptionError`` for a topic that is not compacted."""
        options = self._options
        with Broker(options.connection) as broker:
            names = broker.partitions(options.selection)
            for topic in sorted({name.topic for name in names}):
                described = broker.patiently(lambda topic=topic: broker.client.describe_topic(topic))
                policy = described.configs.get("cleanup.policy", "")
                if "compact" not in policy:
                    raise OptionError(
                        f"option stele.table is true, but topic {topic} is not compacted (cleanup.policy={policy}), "
                        "so it has no newest record per key; set cleanup.policy=compact, or leave the option out"
                    )
            ends = broker.latest(names)
        return [
            TablePartition(topic=name.topic, partition=name.partition, end=end)
            for name, end in sorted(ends.items())
            if end
        ]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        # Spark passes InputPartition(None) if there is nothing to read.
        if isinstance(partition, TablePartition):
            with SpooledTemporaryFile(_MEMORY_BYTES, prefix="stele-table-") as spool:
                pages, replaced = self._load(partition, spool)
                rows = self._rows(partition, spool, pages, replaced)
                if self._decoding is None:
                    yield from rows
                    return
                with Broker(self._options.connection) as broker:
                    yield from self._decoding.decode(rows, broker, f"{partition.topic}-{partition.partition}")

    def _load(self, wanted: TablePartition, spool: IO[bytes]) -> tuple[list[tuple[int, int]], Replaced]:
        """Write all pages to ``spool``; return the offset and size of each, and what the last ones replace."""
        pages: list[tuple[int, int]] = []
        replaced: Replaced = {}
        offset, is_last = 0, False
        with Broker(self._options.connection) as broker:
            while not is_last:
                operation = RawTableFetch(
                    topic=wanted.topic,
                    partition=wanted.partition,
                    offset=offset,
                    end_offset=wanted.end,
                    max_bytes=self._options.fetch_bytes,
                )
                page = broker.call(operation)
                spool.write(page.batches)
                pages.append((offset, len(page.batches)))
                _note_replaced(page.batches, wanted.end, replaced)
                offset, is_last = page.next_offset, page.is_last
        spool.seek(0)
        return pages, replaced

    def _rows(
        self, wanted: TablePartition, spool: IO[bytes], pages: list[tuple[int, int]], replaced: Replaced
    ) -> Iterator[RecordBatch]:
        from ..wire.arrow import Decoder, arrow_schema_of

        names = [name for name, _ in self._columns]
        columns = list(self._columns)
        if replaced:
            columns += [(name, True) for name in ("key", "offset") if name not in names]
        decoder = Decoder(topic=wanted.topic, partition=wanted.partition, schema=arrow_schema_of(columns))
        for start, size in pages:
            for rows in decoder.decode(spool.read(size), start, 2**63 - 1):
                yield _remaining(rows, wanted.end, replaced).select(names) if replaced else rows


def _note_replaced(batches: bytes, end: int, replaced: Replaced) -> None:
    for header in iter_headers(batches):
        if header.last_offset < end or header.is_control:
            continue
        for record in decode_records(batches, header):
            if record.offset >= end and record.key is not None:
                replaced[record.key] = None if record.value is None else record.offset


def _remaining(rows: RecordBatch, end: int, replaced: Replaced) -> RecordBatch:
    """Return the rows of the table after the records at and after ``end``."""
    from ..wire.arrow_types import pa

    keys, offsets = rows.column("key").to_pylist(), rows.column("offset").to_pylist()
    stays = [
        replaced.get(key) == offset if offset >= end else key not in replaced
        for key, offset in zip(keys, offsets, strict=True)
    ]
    return rows.filter(pa.array(stays, pa.bool_()))
