"""What a commit decides.

The offsets of batches, and which batches are refused or known already.

Pure. The caller has locked the logs and read what they know of the producers; it stores what ``Decision``
has. PostgreSQL and the model of the tests thus follow one set of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stele.wire.record_batch import BatchHeader

from ...errors import SteleError
from ..sequences import ProducerSequences, StoredBatch, check_batch, sequences_after
from .meta import BatchPlace, CommitAnswer, LogRow, ObjectWrite, ProducerRow, RunPlace, RunWrite


class ProducerKey(NamedTuple):
    log_id: int
    producer_id: int


class NewRun(NamedTuple):
    """A row to insert; ``object_at`` is the object's place among those of the commit."""

    log_id: int
    base_offset: int
    last_offset: int
    object_at: int
    position: int
    length: int
    max_timestamp: int


@dataclass(slots=True, kw_only=True)
class Decision:
    """What a commit stores, and what it answers.

    ``logs`` and ``producers`` are those that changed.
    """

    answer: CommitAnswer
    runs: list[NewRun]
    logs: dict[int, LogRow]
    producers: dict[ProducerKey, ProducerRow]


def log_ids(objects: Sequence[ObjectWrite]) -> list[int]:
    """Return the logs that a commit locks, in the order in which it must."""
    return sorted({run.log_id for written in objects for run in written.runs})


def producer_keys(objects: Sequence[ObjectWrite]) -> list[ProducerKey]:
    """Return the producers of which a commit must know."""
    return sorted(
        {
            ProducerKey(run.log_id, header.producer_id)
            for written in objects
            for run in written.runs
            for header in run.headers
            if header.has_producer_id
        }
    )


@dataclass(slots=True)
class _Log:
    """A log while batches are placed in it."""

    row: LogRow
    next_offset: int
    named_epochs: Mapping[int, int]
    added_bytes: int = 0
    known: dict[int, ProducerSequences] = field(default_factory=dict[int, ProducerSequences])
    changed: set[int] = field(default_factory=set[int])

    def place(self, header: BatchHeader) -> BatchPlace:
        """Give a batch its offsets, or say why not."""
        base_offset = self.next_offset
        if header.has_producer_id:
            known = self.known.get(header.producer_id)
            try:
                stored = check_batch(header, known, newest_epoch=self.named_epochs.get(header.producer_id))
            except SteleError as error:
                return BatchPlace(-1, error=error)
            if stored is not None:
                return BatchPlace(stored.base_offset, is_duplicate=True)
            placed = replace(header, base_offset=base_offset)
            self.known[header.producer_id] = sequences_after(known, placed)
            self.changed.add(header.producer_id)
        self.next_offset += header.last_offset_delta + 1
        self.added_bytes += header.size
        return BatchPlace(base_offset)

    @property
    def after(self) -> LogRow:
        return replace(
            self.row,
            next_offset=self.next_offset,
            size_bytes=self.row.size_bytes + self.added_bytes,
            unmerged_bytes=self.row.unmerged_bytes + self.added_bytes,
        )


def decide_commit(
    objects: Sequence[ObjectWrite],
    logs: Mapping[int, LogRow],
    producers: Mapping[ProducerKey, ProducerRow],
    named_epochs: Mapping[int, int] | None = None,
) -> Decision:
    """Place all batches of ``objects`` in order.

    ``logs`` lacks those that were deleted. ``named_epochs`` has the newest epochs of named producers, by id.
    """
    epochs: Mapping[int, int] = {} if named_epochs is None else named_epochs
    open_logs = {log_id: _Log(row, row.next_offset, epochs) for log_id, row in logs.items()}
    for key, row in producers.items():
        if key.log_id in open_logs:
            open_logs[key.log_id].known[key.producer_id] = sequences_of(row)
    runs: list[NewRun] = []
    placed: list[list[tuple[RunWrite, list[BatchPlace]]]] = []
    for object_at, written in enumerate(objects):
        placed.append([])
        for run in written.runs:
            log = open_logs.get(run.log_id)
            places = [] if log is None else [log.place(header) for header in run.headers]
            placed[-1].append((run, places))
            runs += _rows(object_at, run, places)
    after = {log_id: log.after for log_id, log in open_logs.items()}
    return Decision(
        answer=[
            [RunPlace(places=places, log=after.get(run.log_id)) for run, places in of_object]
            for of_object in placed
        ],
        runs=runs,
        logs={log_id: row for log_id, row in after.items() if row != logs[log_id]},
        producers={
            ProducerKey(log_id, producer_id): row_of(producer_id, log.known[producer_id])
            for log_id, log in open_logs.items()
            for producer_id in sorted(log.changed)
        },
    )


def _rows(object_at: int, run: RunWrite, places: Iterable[BatchPlace]) -> list[NewRun]:
    """Return the rows of one run: one, unless batches in between got no new offsets."""
    rows: list[NewRun] = []
    position = run.position
    is_open = False
    # A deleted log has no places.
    for header, place in zip(run.headers, places, strict=False):
        if place.error is not None or place.is_duplicate:
            is_open = False
        else:
            last_offset = place.base_offset + header.last_offset_delta
            if is_open:
                row = rows[-1]
                rows[-1] = row._replace(
                    last_offset=last_offset,
                    length=row.length + header.size,
                    max_timestamp=max(row.max_timestamp, header.max_timestamp),
                )
            else:
                rows.append(
                    NewRun(
                        run.log_id,
                        place.base_offset,
                        last_offset,
                        object_at,
                        position,
                        header.size,
                        header.max_timestamp,
                    )
                )
            is_open = True
        position += header.size
    return rows


def sequences_of(row: ProducerRow) -> ProducerSequences:
    """Return what the rules of sequences work on."""
    known = ProducerSequences(row.epoch, is_whole=row.is_whole)
    known.batches.extend(StoredBatch(*batch) for batch in row.batches)
    return known


def row_of(producer_id: int, known: ProducerSequences) -> ProducerRow:
    """Return what is stored of a producer; the metadata adds the time."""
    batches = tuple((batch.base_sequence, batch.last_sequence, batch.base_offset) for batch in known.batches)
    return ProducerRow(producer_id, known.epoch, known.is_whole, batches, -1)
