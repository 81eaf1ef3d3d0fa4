"""One topic: reads from where its table ends, writes files, and commits them with the next offsets."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyiceberg.table import Table

from ..columns.shapes import RECORD, Misfit, check, merged
from ..columns.values import ValueDecoder, ValueRows, slices, value_rows
from ..wire.arrow import Decoder
from ..wire.arrow_types import Array, DataType, RecordBatch, pa
from .columns import RAW, Mode, error_rows, record_columns, split_outside
from .errors import CommitConflict, IcebergError
from .files import DayFiles
from .reading import Fetched, OffsetRange, TopicReader
from .tables import (
    ERRORS,
    KEY_VALUE,
    ROWS,
    VALUE_SCHEMA,
    TableKind,
    Tables,
    count_of,
    plain_struct,
    positions_of,
)
from .upkeep import RETENTION_MS, Upkeep, UpkeepOptions

logger: logging.Logger = logging.getLogger("stele.iceberg")

# Arrow bytes of a turn: then it commits, and other topics have theirs before it goes on.
_TURN_BYTES = 256 * 1024 * 1024

State = Literal["starting", "writing", "level", "failed"]
_Places = Mapping[int, frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic whose mode is not ``off``."""

    topic: str
    topic_id: str
    mode: Mode
    commit_interval_ms: int
    snapshot_retention_ms: int = RETENTION_MS
    partitions: int


@dataclass(slots=True)
class TopicStatus:
    """What is known of a table. Records are counted since the process started, rows are those of the newest snapshot."""

    state: State = "starting"
    rows: int = 0
    error_rows: int = 0
    commits: int = 0
    lag: int | None = None
    lost: int = 0
    failures: int = 0
    # Since the last turn that succeeded.
    failures_in_row: int = 0
    snapshot_id: int | None = None
    committed_ms: int | None = None
    reason: str = ""
    # When everything visible was last written, on the clock of ``time.monotonic``.
    level_s: float = field(default_factory=time.monotonic)


class TopicWriter:
    """Writes the table of one topic, a turn at a time; one thread at a time."""

    def __init__(self, spec: TopicSpec, tables: Tables, values: ValueDecoder) -> None:
        self.spec: TopicSpec = spec
        self.status: TopicStatus = TopicStatus()
        self._tables = tables
        self._values = values
        self._kind: TableKind = KEY_VALUE if spec.mode == "key_value" else VALUE_SCHEMA
        # As of the last turn; None before the first.
        self._positions: dict[int, int] | None = None
        self._turns = 0
        options = UpkeepOptions(retention_ms=spec.snapshot_retention_ms)
        self._upkeep = [(kind, Upkeep(options)) for kind in (self._kind, ERRORS)]

    def keep_up(self) -> None:
        """Do what upkeep of the table, and of that of errors, is due. Raises whatever pyiceberg and Arrow raise."""
        for kind, upkeep in self._upkeep:
            if upkeep.is_due and (table := self._tables.find(self.spec.topic, self.spec.topic_id, kind)):
                upkeep.run(table)

    def turn(self, reader: TopicReader, stopping: threading.Event) -> bool:
        """Write what is visible and not written yet, up to a limit; return whether there is more.

        Raises:
            CommitConflict: another process writes the table; nothing of this turn is in it.
            IcebergError: a person must change something.
            Exception: whatever pyiceberg, Arrow and the broker raise; the next turn finds out what was committed.
        """
        spec, status = self.spec, self.status
        bounds = reader.bounds(spec.topic, spec.partitions)
        if self._positions is not None and not self._ranges(bounds, dict(self._positions)):
            self._note(bounds, self._positions)
            return False
        # From here on the catalog decides: another process may have written.
        self._positions = None
        table = self._tables.open(spec.topic, spec.topic_id, self._kind)
        errors = self._tables.find(spec.topic, spec.topic_id, ERRORS)
        positions = positions_of(table)
        turn = _Turn(table, errors, positions, _committed_errors(errors, positions))
        status.rows, status.error_rows = count_of(table), count_of(errors) if errors else 0
        status.state = "writing"
        ranges = self._ranges(bounds, turn.positions, is_reported=True)
        try:
            for fetched in reader.read(spec.topic, spec.topic_id, ranges):
                if fetched.is_lost:
                    self._report_gap(fetched.partition, fetched.start, fetched.next_offset)
                for rows in turn.decoded(spec.topic, fetched):
                    self._add(turn, turn.uncommitted(fetched.partition, rows))
                    turn.positions[fetched.partition] = rows.column("offset")[-1].as_py() + 1
                    if turn.size >= _TURN_BYTES or stopping.is_set():
                        break
                else:
                    turn.positions[fetched.partition] = fetched.next_offset
                    continue
                break
            self._commit(turn)
        except BaseException:
            turn.discard()
            raise
        self._positions = turn.positions
        self._turns += 1
        return self._note(bounds, turn.positions)

    def _add(self, turn: _Turn, rows: RecordBatch) -> None:
        fitting, refused = split_outside(rows)
        if refused is not None:
            self._add_errors(turn, refused)
        if self.spec.mode == "key_value":
            turn.rows.add(fitting)
        elif fitting.num_rows:
            for some in slices(fitting):
                self._add_values(turn, some)

    def _add_values(self, turn: _Turn, rows: RecordBatch) -> None:
        groups, refused = self._values.decode(rows)
        columns = turn.value_columns()
        accepted: list[ValueRows] = []
        for group in groups:
            try:
                wider = merged(columns, group.values.type)
                if wider != columns:
                    check(wider)
                    self._tables.evolve(turn.table, wider)
                    turn.rows.use(turn.table)
                    columns = turn.value_columns()
            except Misfit as error:
                refused.update(dict.fromkeys(group.numbers, f"its schema does not fit the table: {error}"))
            else:
                accepted.append(group)
        turn.rows.add(value_rows(rows, columns, accepted))
        if refused:
            numbers = sorted(refused)
            self._add_errors(
                turn, error_rows(rows.take(pa.array(numbers)), [refused[number] for number in numbers])
            )

    def _add_errors(self, turn: _Turn, rows: RecordBatch) -> None:
        if turn.error_rows is None:
            turn.errors = turn.errors or self._tables.open(self.spec.topic, self.spec.topic_id, ERRORS)
            turn.error_rows = DayFiles(turn.errors, None)
        turn.error_rows.add(rows)

    def _commit(self, turn: _Turn) -> None:
        status = self.status
        if turn.positions == turn.before:
            return
        # Errors first: if the other commit fails, the next turn leaves out what is in the table of errors already.
        if turn.error_rows is not None and turn.errors is not None:
            # A turn may end before the one that was killed had ended: its errors are in the table nevertheless.
            before = positions_of(turn.errors)
            positions = {one: max(at, before.get(one, 0)) for one, at in turn.positions.items()}
            errors = self._append(turn.errors, turn.error_rows, turn.errors_parent, positions)
            status.error_rows = count_of(errors)
        table = self._append(turn.table, turn.rows, turn.parent, turn.positions)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        status.rows, status.snapshot_id = count_of(table), snapshot.snapshot_id
        status.committed_ms, status.commits = snapshot.timestamp_ms, status.commits + 1

    def _append(
        self, table: Table, files: DayFiles, parent_id: int | None, positions: Mapping[int, int]
    ) -> Table:
        done = files.finish()
        # If the outcome is unknown, the files stay.
        files.is_kept = True
        try:
            return self._tables.commit(
                table, done, parent_id=parent_id, positions=positions, topic_id=self.spec.topic_id
            )
        except CommitConflict:
            files.is_kept = False
            raise

    def _ranges(
        self, bounds: Sequence[OffsetRange], positions: dict[int, int], *, is_reported: bool = False
    ) -> list[OffsetRange]:
        """Return what is to be read, and move positions to where it begins. Raises ``IcebergError``."""
        ranges: list[OffsetRange] = []
        for partition, start, end in bounds:
            position = positions.setdefault(partition, start)
            if position > end:
                raise IcebergError(
                    f"{self.spec.topic}-{partition} ends at offset {end}, and table {self.spec.topic} has its records up to "
                    f"{position}: the log has lost its last records, or was restored from an older copy. Rename or drop the "
                    "table, and it is written again from the start of the log"
                )
            if position < start:
                if is_reported:
                    self._report_gap(partition, position, start)
                positions[partition] = position = start
                # Even without records to read, the gap is committed.
                ranges.append(OffsetRange(partition, position, max(end, position)))
            elif position < end:
                ranges.append(OffsetRange(partition, position, end))
        first = self._turns % len(ranges) if ranges else 0
        return ranges[first:] + ranges[:first]

    def _report_gap(self, partition: int, start: int, end: int) -> None:
        self.status.lost += end - start
        logger.error(
            "table %s lacks offsets %d to %d of partition %d: they were deleted before they were written, by "
            "retention or by a request; make retention.ms longer, or stele.iceberg.commit.interval.ms shorter",
            self.spec.topic,
            start,
            end - 1,
            partition,
        )

    def _note(self, bounds: Sequence[OffsetRange], positions: Mapping[int, int]) -> bool:
        """Note how far the table is; return whether there is more to write."""
        status = self.status
        status.lag = sum(max(end - positions[partition], 0) for partition, _, end in bounds)
        status.state, status.reason, status.failures_in_row = ("writing" if status.lag else "level"), "", 0
        if not status.lag:
            status.level_s = time.monotonic()
        return status.lag > 0


class _Turn:
    """The files of a turn, and where it began; ``positions`` move with what is read."""

    def __init__(
        self, table: Table, errors: Table | None, positions: dict[int, int], committed: _Places
    ) -> None:
        self.table = table
        self.errors = errors
        self.before = positions
        self.positions = dict(positions)
        self.parent = _snapshot_id(table)
        self.errors_parent = None if errors is None else _snapshot_id(errors)
        is_plain = table.properties[ROWS] == "key_value"
        self.rows = DayFiles(table, _time if is_plain else _record_time)
        self.error_rows: DayFiles | None = None
        # Arrow bytes that were read.
        self.size = 0
        self._committed = committed
        self._decoders: dict[int, Decoder] = {}

    def decoded(self, topic: str, fetched: Fetched) -> Iterator[RecordBatch]:
        """Yield the records of batches, at least one at a time."""
        partition = fetched.partition
        decoder = self._decoders.get(partition)
        if decoder is None:
            decoder = Decoder(topic=topic, partition=partition, schema=RAW)
            self._decoders[partition] = decoder
        for raw in decoder.decode(fetched.batches, fetched.start, fetched.end):
            self.size += raw.nbytes
            yield record_columns(raw)

    def uncommitted(self, partition: int, rows: RecordBatch) -> RecordBatch:
        """Return rows without those that the table of errors has already."""
        committed = self._committed.get(partition)
        if not committed:
            return rows
        offsets = rows.column("offset").to_pylist()
        return rows.filter(pa.array([offset not in committed for offset in offsets]))

    def value_columns(self) -> DataType:
        """Return the columns of values that the table has, as a struct."""
        return pa.struct([field for field in plain_struct(self.table) if field.name != RECORD])

    def discard(self) -> None:
        self.rows.discard()
        if self.error_rows is not None:
            self.error_rows.discard()


def _time(rows: RecordBatch) -> Array:
    return rows.column("timestamp")


def _record_time(rows: RecordBatch) -> Array:
    return rows.column(RECORD).field("timestamp")


def _snapshot_id(table: Table) -> int | None:
    snapshot = table.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id


def _committed_errors(errors: Table | None, positions: Mapping[int, int]) -> _Places:
    """Return the offsets of records that the table of errors has, and the other table does not stand after.

    There are some if the process was killed between the two commits.
    """
    if errors is None:
        return {}
    ahead = {
        partition: positions.get(partition, 0)
        for partition, offset in positions_of(errors).items()
        if offset > positions.get(partition, 0)
    }
    if not ahead:
        return {}
    # The filter spares files; what it lets through is compared below.
    scan: Any = errors.scan(
        row_filter=f"offset >= {min(ahead.values())}", selected_fields=("partition", "offset")
    )
    found: Any = scan.to_arrow()
    places: dict[int, set[int]] = {}
    for partition, offset in zip(
        found.column("partition").to_pylist(), found.column("offset").to_pylist(), strict=True
    ):
        if partition in ahead and offset >= ahead[partition]:
            places.setdefault(partition, set()).add(offset)
    return {partition: frozenset(offsets) for partition, offsets in places.items()}
