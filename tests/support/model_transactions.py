"""The transactional ids of brokers with shared storage as dictionaries, over ``ModelMeta``.

Every call is atomic, as a transaction of ``PostgresTransactions`` and of the store of pending offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType, marker_batch

from app.cluster.shared_transactions import Decide, EndOfTransaction, T, Updated
from app.cluster.transaction_store import TransactionRecord
from app.storage.shared.commit_rules import IdRow, ProducerKey
from app.storage.shared.meta import CopyPhase, ObjectWrite, PartitionId, RunWrite
from app.storage.shared.runs.object_format import ObjectRun, footer_bytes, header_bytes
from app.storage.shared.store.object_keys import MARKERS, ObjectKeys
from app.storage.shared.write_buffer import object_run
from app.storage.topic_partition import TopicPartition
from app.transactions.messages import ProducerIdentity
from app.transactions.states import TransactionState
from app.transactions.transaction import EPOCH_MAX

from .model_meta import ModelMeta

MARKERS_UPLOADER = UUID(int=1 << 64)


class ModelTransactions:
    """``store`` has the objects of the markers; they are in the metadata if ``is_inline``.

    ``committed`` are the committed offsets by group.
    """

    def __init__(
        self, meta: ModelMeta, store: dict[str, bytes], *, is_inline: bool, now_ms: Callable[[], int]
    ) -> None:
        self.records: dict[str, TransactionRecord] = {}
        self.committed: dict[str, int] = {}
        self.pending: dict[ProducerIdentity, dict[str, int]] = {}
        self._meta = meta
        self._store = store
        self._is_inline = is_inline
        self._now_ms = now_ms
        self._keys = ObjectKeys(MARKERS, MARKERS_UPLOADER)
        meta.id_rows = self._id_rows
        meta.on_begun = self._begun
        meta.on_history = self._doubt

    def _id_rows(self) -> dict[int, IdRow]:
        return {
            record.producer_id: IdRow(
                record.transactional_id,
                EPOCH_MAX if record.may_be_torn else record.epoch,
                record.state == TransactionState.ONGOING.value,
                frozenset(TopicPartition(*pair) for pair in record.partitions),
            )
            for record in self.records.values()
        }

    def _begun(self, producer_ids: Sequence[int]) -> None:
        for record in list(self.records.values()):
            if record.producer_id in producer_ids:
                self.records[record.transactional_id] = replace(
                    record, state=TransactionState.ONGOING.value, started_at_ms=self._now_ms()
                )

    def _doubt(self) -> None:
        for record in list(self.records.values()):
            is_open = record.state == TransactionState.ONGOING.value
            self.records[record.transactional_id] = replace(
                record, may_be_torn=is_open or record.may_be_torn, epochs_may_repeat=True
            )

    def is_open(self, producer: ProducerIdentity) -> bool:
        """Return whether a transaction of the producer is open."""
        return any(
            (record.producer_id, record.epoch) == producer
            and record.state == TransactionState.ONGOING.value
            and not record.may_be_torn
            for record in self.records.values()
        )

    async def update(self, ids: Collection[str], decide: Decide[T]) -> Updated[T]:
        before = {name: self.records[name] for name in ids if name in self.records}
        update = decide(before, self._now_ms())
        for record in update.records:
            known = before.get(record.transactional_id)
            is_same = known is not None and (known.producer_id, known.epoch) == (
                record.producer_id,
                record.epoch,
            )
            self.records[record.transactional_id] = replace(
                record,
                may_be_torn=False,
                epochs_may_repeat=known is not None and is_same and known.epochs_may_repeat,
            )
        has_offsets = [self.end_offsets(end) for end in update.ends]
        partitions = self._append_markers(update.ends)
        return Updated(
            result=update.result,
            history=self._meta.history,
            partitions=partitions,
            has_offsets=any(has_offsets),
        )

    async def stage(self, producer: ProducerIdentity, group: str, offset: int) -> bool:
        """Store a pending offset; return False if the transaction has ended."""
        if not self.is_open(producer):
            return False
        self.pending.setdefault(producer, {})[group] = offset
        return True

    def end_offsets(self, end: EndOfTransaction) -> bool:
        offsets = self.pending.pop(ProducerIdentity(end.producer_id, end.epoch), {})
        if end.is_commit:
            self.committed.update(offsets)
        return bool(offsets)

    def open_keys(self, producer_ids: Collection[int]) -> list[ProducerKey]:
        """Return where transactions of these producers are open; not in copies, nor in logs that were deleted."""
        live = {row.log_id for row in self._meta.live_logs if row.copy_phase is not CopyPhase.COPIED}
        opened = self._meta.open_in_logs()
        return sorted(key for key in opened if key.producer_id in producer_ids and key.log_id in live)

    def _append_markers(self, ends: Sequence[EndOfTransaction]) -> list[PartitionId]:
        by_producer = {end.producer_id: end for end in ends}
        keys = self.open_keys(by_producer)
        partitions = {row.log_id: row.partition_id for row in self._meta.live_logs}
        if not keys:
            return []
        data = bytearray(header_bytes())
        writes: list[RunWrite] = []
        runs: list[ObjectRun] = []
        for log_id, of_log in groupby(keys, lambda key: key.log_id):
            here = [by_producer[key.producer_id] for key in of_log]
            batches = [self._marker(end) for end in here]
            writes.append(
                RunWrite(
                    log_id=log_id,
                    position=len(data),
                    headers=[rb.read_header(batch) for batch in batches],
                    aborts=frozenset(at for at, end in enumerate(here) if not end.is_commit),
                )
            )
            written = [(batch, [header]) for batch, header in zip(batches, writes[-1].headers, strict=True)]
            length = sum(map(len, batches))
            runs.append(object_run(partitions[log_id], written, len(data), length))
            data += b"".join(batches)
        data += footer_bytes(runs)
        key = self._keys.next(len(data))
        inline = bytes(data) if self._is_inline else None
        self._store[key] = bytes(data)
        self._meta.place(
            [ObjectWrite(key=key, uploader=MARKERS_UPLOADER, size=len(data), runs=writes, inline=inline)]
        )
        return [partitions[write.log_id] for write in writes]

    def _marker(self, end: EndOfTransaction) -> bytearray:
        kind = MarkerType.COMMIT if end.is_commit else MarkerType.ABORT
        return marker_batch(
            EndTransactionMarker(type=kind, coordinator_epoch=0),
            producer_id=end.producer_id,
            producer_epoch=end.marker_epoch,
            timestamp_ms=self._now_ms(),
        )
