"""Partitions with transactions: written through the broker, with a model of what readers see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType
from stele.wire.isolation_level import IsolationLevel

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.producing.transaction_gate import MarkerOrder
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce

Seen = list[tuple[int, bytes]]


class AdmitAll:
    """A gate that admits every transactional batch."""

    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: rb.BatchHeader
    ) -> None:
        pass


@dataclass(slots=True)
class TransactionHistory:
    """One partition of a topic; each call appends to it."""

    broker: Broker
    topic: str
    partition: int = 0
    committed: Seen = field(default_factory=list[tuple[int, bytes]])
    uncommitted: Seen = field(default_factory=list[tuple[int, bytes]])
    _open: dict[int, Seen] = field(default_factory=dict[int, Seen])
    _sequences: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.broker.set_transaction_gate(AdmitAll())

    def seen(self, isolation: IsolationLevel) -> Seen:
        """Return the records that a reader gets, in order."""
        if isolation is IsolationLevel.READ_UNCOMMITTED:
            return sorted(self.uncommitted)
        bound = self.end(isolation)
        return sorted(record for record in self.committed if record[0] < bound)

    def end(self, isolation: IsolationLevel) -> int:
        """Return where every reader's cursor ends."""
        if isolation is IsolationLevel.READ_COMMITTED and self._open:
            return min(records[0][0] for records in self._open.values())
        return self.broker.log_state(self.topic, self.partition).high_watermark

    async def write(
        self, count: int, *, producer: int = -1, key: bytes | None = None, size: int = 0
    ) -> Sequence[int]:
        """Append a batch; with ``producer`` in its transaction. Returns the offsets."""
        sequence = self._sequences.get(producer, 0)
        is_transactional = producer >= 0
        builder = rb.BatchBuilder(
            producer_id=producer,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=sequence if is_transactional else -1,
            is_transactional=is_transactional,
        )
        start = self.broker.log_state(self.topic, self.partition).high_watermark
        records = [(start + n, b"%d:%d" % (producer, start + n) + bytes(size)) for n in range(count)]
        for _, value in records:
            builder.append(timestamp_ms=1000, key=key, value=value)
        transaction = TransactionalProduce(transactional_id=f"t{producer}", adds_partitions=True)
        pending = self.broker.produce(
            self.topic,
            self.partition,
            builder.build(),
            acks=Acks.LEADER,
            transaction=transaction if is_transactional else None,
        )
        await pending.wait(timeout_ms=10_000)
        self._sequences[producer] = sequence + count
        self.uncommitted += records
        if is_transactional:
            self._open.setdefault(producer, []).extend(records)
        else:
            self.committed += records
        return [offset for offset, _ in records]

    async def end_transaction(self, producer: int, kind: MarkerType) -> None:
        (ticket,) = self.broker.append_markers(
            [
                MarkerOrder(
                    topic_partition=TopicPartition(self.topic, self.partition),
                    producer_id=producer,
                    producer_epoch=0,
                    marker=EndTransactionMarker(type=kind, coordinator_epoch=0),
                )
            ]
        )
        if ticket.future is not None:
            await ticket.future
        records = self._open.pop(producer)
        if kind is MarkerType.COMMIT:
            self.committed += records

    async def commit(self, producer: int) -> None:
        await self.end_transaction(producer, MarkerType.COMMIT)

    async def abort(self, producer: int) -> None:
        await self.end_transaction(producer, MarkerType.ABORT)
