"""The simulation of shared storage with transactions on compacted topics (``shared_cluster``).

Producers with and without transactions write the same few keys. What each record became is taken from the commits
themselves: at each offset, the record of a committed transaction or of none, or of one that is open or was aborted.
Readers of committed records, look-ups and tables show the first alone, before, during and after passes, and
no aborted record lets an older committed one go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from stele.wire import record_batch as rb
from stele.wire.control_record import MarkerType, read_marker

from app.storage.engine import AbortedTransaction
from app.storage.shared.commit_rules import Decision
from app.storage.shared.meta import LogRow, ObjectWrite
from app.storage.shared.runs.builder import whole_run
from app.transactions.messages import ProducerIdentity

from .compacted_cluster import MARKER_MS_MIN, CompactedCluster
from .shared_cluster import NAMES, SimulatedBroker
from .transactional_cluster import TransactionalCluster

# Passes after which nothing is left of an aborted transaction: first its batches go, at last their places.
_ROUNDS = 6
_Record = tuple[bytes | None, bytes | None]


class CompactedTransactionsCluster(CompactedCluster, TransactionalCluster):
    """Brokers whose topic is compacted, and producers of which some have transactional ids.

    ``records`` are those that are committed.
    """

    steps = 12
    batches = 4

    def __init__(self, seed: int, **classes: Any) -> None:
        super().__init__(seed, **classes)
        self.meta.watchers.append(self._note)
        # By CRC, which is that of the records and their producer.
        self._sent: dict[int, bytes] = {}
        # By partition and producer: what is in its open transaction.
        self._open: dict[tuple[int, int], dict[int, _Record]] = {}

    # ── what clients do ──

    def producers(self, batches: int) -> list[Coroutine[Any, Any, None]]:
        return [*CompactedCluster.producers(self, batches), *TransactionalCluster.producers(self, batches)]

    def batch(self, values: list[bytes], **given: Any) -> bytearray:
        batch = super().batch(values, **given)
        self._sent[rb.check_batch(batch).crc] = bytes(batch)
        return batch

    def transactional_batch(self, value: bytes, producer: ProducerIdentity, base_sequence: int) -> bytearray:
        return self.batch(
            [value],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=base_sequence,
            is_transactional=True,
        )

    def _note(self, objects: Sequence[ObjectWrite], decision: Decision) -> None:
        """Note what a commit stores."""
        partitions = {row.log_id: row.partition_id.partition for row in self.meta.live_logs}
        for written, places_of in zip(objects, decision.answer, strict=True):
            for run, run_places in zip(written.runs, places_of, strict=True):
                partition = partitions[run.log_id]
                for at, (header, place) in enumerate(zip(run.headers, run_places.places, strict=True)):
                    if place.error is not None or place.is_duplicate:
                        continue
                    name = (partition, header.producer_id)
                    if header.is_control:
                        decided = self._open.pop(name, {})
                        if at not in run.aborts:
                            self.records[partition].update(decided)
                        continue
                    raw = self._sent[header.crc]
                    into = (
                        self._open.setdefault(name, {})
                        if header.is_transactional
                        else self.records[partition]
                    )
                    for record in rb.decode_records(raw):
                        into[place.base_offset + record.offset] = (record.key, record.value)

    # ── what readers get ──

    def shown(self, raw: bytes, aborted: Sequence[AbortedTransaction]) -> Iterator[rb.BatchHeader]:
        """Leave out what is aborted as Kafka's clients do: an entry begins at its offset, a marker ends it."""
        waiting = list(aborted)
        assert waiting == sorted(waiting, key=lambda entry: entry.first_offset)
        left_out: set[int] = set()
        for header in rb.iter_headers(raw):
            while waiting and waiting[0].first_offset <= header.last_offset:
                left_out.add(waiting.pop(0).producer_id)
            if header.is_control:
                if _is_abort(raw, header):
                    left_out.discard(header.producer_id)
            elif header.record_count and not (header.is_transactional and header.producer_id in left_out):
                yield header

    def see(
        self, partition: int, raw: bytes, aborted: Sequence[AbortedTransaction] = ()
    ) -> list[tuple[int, bytes, bytes | None]]:
        for header in self.shown(raw, aborted):
            for record in rb.decode_records(raw, header):
                assert record.offset in self.records[partition], "a record that is not committed is shown"
        return super().see(partition, raw, aborted)

    def known(self, partition: int) -> dict[bytes, int]:
        (row,) = (row for row in self.meta.live_logs if row.partition_id.partition == partition)
        return {
            key: offset
            for offset, (key, _) in sorted(self.records[partition].items())
            if key is not None and offset < row.last_stable
        }

    def check_found(self, partition: int, offset: int) -> None:
        assert offset in self.records[partition], "a look-up finds a record that is not committed"

    # ── checks ──

    async def finish(self, broker: SimulatedBroker) -> None:
        """After all passes, each key has one record, and of aborted transactions nothing is left in the end."""
        await super().finish(broker)
        for row in self.meta.live_logs:
            records, _ = await self._stored(row)
            committed = self.records[row.partition_id.partition]
            assert records <= committed.keys(), "records of aborted transactions are left"
        for _ in range(_ROUNDS):
            if not any([await self._lonely_markers(row) for row in self.meta.live_logs]):
                break
            # The markers that this round finds alone go in the next.
            await asyncio.sleep(MARKER_MS_MIN / 1000 + 1)
            for partition, name in enumerate(NAMES):
                batch = self.batch([b"last %d" % partition], producer_id=-1, base_sequence=-1)
                ticket = broker.engine.append(name, batch, rb.check_produced(batch), sync=True)
                assert ticket.future is not None
                await ticket.future
            while await broker.engine.compact():
                pass
            await self.verify(broker)
        else:
            raise AssertionError("markers stay whose transactions have no batches")

    async def _lonely_markers(self, row: LogRow) -> set[int]:
        """Return markers of aborts that may go; the last batch of a run keeps its place."""
        _, lonely = await self._stored(row)
        return lonely - {run.last_offset for run in self.meta.runs_of[row.log_id]}

    async def _stored(self, row: LogRow) -> tuple[set[int], set[int]]:
        """Return the offsets of all records, and those of markers of aborts without any batch of their transaction."""
        records: set[int] = set()
        markers: set[int] = set()
        batches: list[tuple[int, int]] = []
        for run in self.meta.runs_of[row.log_id]:
            data = self.store.objects[run.object.key][run.position : run.position + run.length]
            for batch, header in whole_run(run, bytearray(data)):
                if not header.is_control:
                    records.update(record.offset for record in rb.decode_records(batch, header))
                    batches.append((header.producer_id, header.base_offset))
                elif _is_abort(batch, header):
                    markers.add(header.base_offset)
        found = await self.meta.aborted(row.log_id, row.log_start, row.next_offset)
        assert found is not None
        known = found.transactions
        assert {entry.last_offset for entry in known} == {at for at in markers if at >= row.log_start}, (
            "the log knows other aborted transactions than its markers"
        )
        lonely = {
            entry.last_offset
            for entry in known
            if not any(
                producer_id == entry.producer_id and entry.first_offset <= base_offset < entry.last_offset
                for producer_id, base_offset in batches
            )
        }
        return {offset for offset in records if offset >= row.log_start}, lonely


def _is_abort(raw: bytes, header: rb.BatchHeader) -> bool:
    batch = raw[header.position : header.position + header.size]
    marker = read_marker(batch, rb.check_batch(batch))
    return marker is not None and marker.type is MarkerType.ABORT
