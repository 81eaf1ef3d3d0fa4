"""Partitions with many aborted transactions, each of one record and its marker."""

from __future__ import annotations

from stele.wire import record_batch as rb
from stele.wire.control_record import EndTransactionMarker, MarkerType

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.broker.producing.transaction_gate import MarkerOrder
from app.storage.topic_partition import TopicPartition
from app.storage.transactional_produce import TransactionalProduce
from app.work_budget import pause

_ANY = TransactionalProduce(transactional_id="any", adds_partitions=True)


class _AnyTransaction:
    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: rb.BatchHeader
    ) -> None:
        """Each batch is in a transaction."""


async def append_aborted(broker: Broker, topic: str, count: int, *, producers: int = 3) -> None:
    """Append ``count`` aborted transactions of some producers to partition 0, which has none yet."""
    broker.set_transaction_gate(_AnyTransaction())
    for number in range(count):
        producer_id = number % producers
        batch = rb.build_rows(
            [(1_000, b"k", b"v", [])],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number // producers,
            is_transactional=True,
        )
        await broker.produce(topic, 0, batch, acks=Acks.LEADER, transaction=_ANY).wait(1_000)
        marker = EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=1)
        order = MarkerOrder(
            topic_partition=TopicPartition(topic, 0), producer_id=producer_id, producer_epoch=0, marker=marker
        )
        broker.append_markers([order])
        await pause()
