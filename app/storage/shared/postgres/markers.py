"""The markers of transactions that end, in one object.

They get their offsets in the PostgreSQL transaction that decides the end: so readers see the end in all logs, or in
none, and nothing is left to be finished (ADR-0055).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from ....postgres.connector import Connection
from ..meta import ObjectWrite, PartitionId, RunWrite
from ..runs.object_format import Buffer, ObjectRun, footer_bytes, header_bytes
from ..store.object_keys import MARKERS, ObjectKeys
from ..write_buffer import object_run
from .commit import place_objects

# No coordinator has a number: what fences a producer is its epoch, which a commit compares under a lock.
_COORDINATOR_EPOCH = 0

# In a copy, the same id is that of a producer of another cluster.
_OPEN = """
    SELECT o.log_id, l.topic_id, l.part, o.producer_id
    FROM open_transactions o JOIN logs l USING (log_id)
    WHERE o.producer_id = ANY (%s::bigint[]) AND l.deleted_at IS NULL AND l.copy_phase <> 1
    ORDER BY o.log_id, o.producer_id
"""


class EndedProducer(NamedTuple):
    """A producer whose transaction ends; its markers have ``epoch``."""

    producer_id: int
    epoch: int
    is_commit: bool


class PostgresMarkers:
    """Writes the markers of one broker."""

    def __init__(self, incarnation: UUID) -> None:
        self._incarnation = incarnation
        self._keys = ObjectKeys(MARKERS, incarnation)
        self._lock = threading.Lock()

    def append(
        self, connection: Connection, ended: Sequence[tuple[int, int, bool]], now_ms: int
    ) -> list[PartitionId]:
        """Append the markers of producers to all logs where they have transactions open.

        ``ended`` are ``EndedProducer``. Return the partitions. The caller has begun a transaction, holds the locks of the transactional ids, and commits.

        Raises ``psycopg.Error``.
        """
        by_producer = {row[0]: EndedProducer(*row) for row in ended}
        rows = connection.execute(_OPEN, (list(by_producer),), prepare=True, binary=True).fetchall()
        if not rows:
            return []
        parts: list[Buffer] = [header_bytes()]
        position = len(parts[0])
        writes: list[RunWrite] = []
        runs: list[ObjectRun] = []
        for (log_id, topic_id, part), of_log in groupby(rows, lambda row: tuple(row[:3])):
            here = [by_producer[row[3]] for row in of_log]
            batches = [_marker(producer, now_ms) for producer in here]
            headers = [rb.read_header(batch) for batch in batches]
            length = sum(map(len, batches))
            writes.append(
                RunWrite(
                    log_id=log_id,
                    position=position,
                    headers=headers,
                    aborts=frozenset(at for at, producer in enumerate(here) if not producer.is_commit),
                )
            )
            written = [(batch, [header]) for batch, header in zip(batches, headers, strict=True)]
            runs.append(object_run(PartitionId(topic_id, part), written, position, length))
            parts += batches
            position += length
        parts.append(footer_bytes(runs))
        data = b"".join(parts)
        with self._lock:
            key = self._keys.next(len(data))
        place_objects(
            connection,
            [ObjectWrite(key=key, uploader=self._incarnation, size=len(data), runs=writes, inline=data)],
        )
        return [PartitionId(run.topic_id, run.partition) for run in runs]


def _marker(ended: EndedProducer, now_ms: int) -> bytearray:
    kind = MarkerType.COMMIT if ended.is_commit else MarkerType.ABORT
    return marker_batch(
        EndTransactionMarker(type=kind, coordinator_epoch=_COORDINATOR_EPOCH),
        producer_id=ended.producer_id,
        producer_epoch=ended.epoch,
        timestamp_ms=now_ms,
    )
