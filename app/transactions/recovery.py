"""Makes logs and store agree on each transaction before the coordinator serves clients.

========================================================  =======================================================
in the store, and in a log                                what is done
========================================================  =======================================================
an outcome; open, and begun before the outcome            the marker is appended
an outcome; not open, or begun after the outcome          nothing; the outcome is deleted when all logs are synced
an id with this producer id and epoch; open               the transaction stays open, and holds the partition
another epoch, or no id with this producer id; open       it is aborted: no one can end it
pending offsets of a producer that is not current         they are dropped
========================================================  =======================================================

The store alone knows how a transaction ended, and the logs alone know to which partitions it wrote.
"""

from __future__ import annotations

import asyncio
import logging

from stele.wire.control_record import EndTransactionMarker, MarkerType

from ..broker.broker import Broker
from ..broker.producing.transaction_gate import MarkerOrder
from ..cluster.group_store import StoreChange
from ..cluster.transaction_store import DeleteOutcome
from ..errors import SteleError, TopicError
from ..groups.base.messages import OffsetsOfTransaction
from ..groups.base.parking import answer
from ..groups.coordinator import GroupCoordinator
from .endings import marker_orders
from .messages import ProducerIdentity
from .plans import Moment
from .table import TransactionTable
from .transaction import EPOCH_MAX, Transaction

logger = logging.getLogger(__name__)


async def recover(*, broker: Broker, groups: GroupCoordinator, table: TransactionTable, now: Moment) -> int:
    """Fill ``table`` and end what must not stay open; return the number for the next outcome.

    Raises:
        GroupStoreFailed: the store cannot be read or written.
        StorageError: the log does not accept markers.
    """
    stored = await groups.table.transactions()
    for record in sorted(stored.transactions, key=lambda record: record.started_at_ms):
        table.add(Transaction.restored(record, now=now))
    for outcome in stored.outcomes:
        # One at a time: an earlier outcome of the same producer may have ended its transaction here.
        broker.append_markers(marker_orders(broker, outcome, coordinator_epoch=groups.epoch))
    _forget_missing_topics(broker, table)
    broker.append_markers(_orphans(broker, table, coordinator_epoch=groups.epoch, now=now))
    dropped = _offsets(groups, table, now=now)
    changes: list[StoreChange] = [change for offsets in dropped for change in offsets.changes]
    if stored.outcomes:
        await broker.flush()
        changes += [DeleteOutcome(number=outcome.number) for outcome in stored.outcomes]
        logger.info("%d outcomes of transactions were checked against the logs", len(stored.outcomes))
    if changes:
        await _write(groups, changes)
    for offsets in dropped:
        offsets.apply()
    return max((outcome.number for outcome in stored.outcomes), default=0) + 1


def _forget_missing_topics(broker: Broker, table: TransactionTable) -> None:
    for transaction in table:
        for topic in {partition.topic for partition in transaction.partitions}:
            try:
                broker.topic(topic)
            except TopicError:
                transaction.forget_topic(topic)


def _orphans(
    broker: Broker, table: TransactionTable, *, coordinator_epoch: int, now: Moment
) -> list[MarkerOrder]:
    """Give what is open in the logs to its transaction; return markers for what has none."""
    marker = EndTransactionMarker(type=MarkerType.ABORT, coordinator_epoch=coordinator_epoch)
    orders: list[MarkerOrder] = []
    for opened in broker.open_transactions():
        if broker.topic(opened.topic_partition.topic).config.mirror:
            # Its coordinator, and the end that will be copied, are at the source.
            continue
        producer = ProducerIdentity(opened.producer_id, opened.producer_epoch)
        transaction = table.of_identity(producer)
        if transaction is not None:
            transaction.adopt(opened.topic_partition, now=now)
            table.changed(transaction)
            continue
        logger.warning(
            "%s has an open transaction of producer %d, epoch %d, that no producer can end: it is aborted",
            opened.topic_partition,
            *producer,
        )
        orders.append(
            MarkerOrder(
                topic_partition=opened.topic_partition,
                producer_id=opened.producer_id,
                producer_epoch=min(opened.producer_epoch + 1, EPOCH_MAX),
                marker=marker,
            )
        )
    return orders


def _offsets(groups: GroupCoordinator, table: TransactionTable, *, now: Moment) -> list[OffsetsOfTransaction]:
    """Give pending offsets to their transactions; return those to drop."""
    dropped: dict[int, OffsetsOfTransaction] = {}
    for staged in groups.transactional.staged_groups():
        transaction = table.of_identity(ProducerIdentity(staged.producer_id, staged.producer_epoch))
        if transaction is not None:
            transaction.adopt_group(staged.group, now=now)
            table.changed(transaction)
        elif staged.producer_id not in dropped:
            dropped[staged.producer_id] = groups.end_offsets(staged.producer_id, commit=False)
    return list(dropped.values())


async def _write(groups: GroupCoordinator, changes: list[StoreChange]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(error: SteleError | None) -> None:
        answer(future, error)

    groups.table.persist(changes, written)
    await future
