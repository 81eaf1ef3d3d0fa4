"""Named producers and transactional ids of two implementations, which must answer random calls alike."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from app.cluster.postgres.catalog import PostgresCatalog
from app.cluster.postgres.database import PostgresDatabase
from app.cluster.postgres.transactions import PostgresTransactions
from app.cluster.shared_transactions import (
    EndOfTransaction,
    SharedTransactionStore,
    TransactionUpdate,
    Updated,
)
from app.cluster.transaction_store import TransactionRecord
from app.postgres.pool import PostgresPool
from app.postgres.session import PostgresSession
from app.storage.shared.postgres.markers import PostgresMarkers
from app.transactions.states import TransactionState

from .model_meta import ModelMeta
from .model_transactions import MARKERS_UPLOADER, ModelTransactions

# The time in all markers, as two implementations have clocks of their own.
MARKED_MS = 400
ONGOING = TransactionState.ONGOING.value


class IdChange(NamedTuple):
    """What a request does with a transactional id: ``begin`` an epoch, ``add`` a partition, ``commit``, ``abort``."""

    producer_id: int
    what: str
    partition: tuple[str, int]


class Names(Protocol):
    async def begin_version(self, name: str, version: int, fresh_id: int) -> tuple[int, int, int, bool]:
        """Begin a version of a named producer; return version, producer id, epoch and whether it had begun."""
        ...

    async def update(self, changes: Mapping[str, IdChange]) -> Updated[list[TransactionRecord]]:
        """Change transactional ids; the result is what they were."""
        ...

    async def records(self) -> list[TransactionRecord]: ...
    async def opened(self) -> list[Any]:
        """Return the transactions that are open in logs."""
        ...


def decide(
    before: Mapping[str, TransactionRecord], changes: Mapping[str, IdChange]
) -> TransactionUpdate[list[TransactionRecord]]:
    """Return what ``changes`` do, as the machine of the brokers would in short."""
    records: list[TransactionRecord] = []
    ends: list[EndOfTransaction] = []
    for name, change in sorted(changes.items()):
        old = before.get(name)
        if old is None:
            old = TransactionRecord(
                transactional_id=name,
                producer_id=change.producer_id,
                epoch=-1,
                previous_producer_id=-1,
                last_epoch=-1,
                timeout_ms=60_000,
                state=TransactionState.EMPTY.value,
                started_at_ms=-1,
                updated_at_ms=0,
            )
            change = change._replace(what="begin")
        is_ongoing = old.state == ONGOING
        epoch = old.epoch + (change.what == "begin")
        if change.what == "add":
            partitions = tuple(sorted({*old.partitions, change.partition}))
            records.append(replace(old, state=ONGOING, partitions=partitions))
            continue
        is_commit = change.what == "commit"
        if is_ongoing:
            ends.append(EndOfTransaction(old.producer_id, old.epoch, epoch, is_commit))
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        records.append(replace(old, epoch=epoch, state=state.value, partitions=()))
    return TransactionUpdate(
        result=[_untimed(before[name]) for name in sorted(before)], records=records, ends=ends
    )


def _untimed(record: TransactionRecord) -> TransactionRecord:
    return replace(record, started_at_ms=0, updated_at_ms=0)


class PostgresNames:
    def __init__(self, session: PostgresSession, pool: PostgresPool) -> None:
        self._catalog = PostgresCatalog(PostgresDatabase(session))
        markers = PostgresMarkers(MARKERS_UPLOADER)
        self._transactions: SharedTransactionStore = PostgresTransactions(
            pool, lambda connection, ended, now_ms: markers.append(connection, ended, MARKED_MS)
        )

    async def begin_version(self, name: str, version: int, fresh_id: int) -> tuple[int, int, int, bool]:
        begun = await asyncio.to_thread(
            self._catalog.begin_producer_version, name, version, fresh_id=fresh_id, now_ms=0
        )
        return begun.version, begun.producer_id, begun.epoch, begun.is_resumed

    async def update(self, changes: Mapping[str, IdChange]) -> Updated[list[TransactionRecord]]:
        return await self._transactions.update(changes, lambda before, _: decide(before, changes))

    async def records(self) -> list[TransactionRecord]:
        return [_untimed(record) for record in await self._transactions.records()]

    async def opened(self) -> list[Any]:
        opened = await self._transactions.open_in_logs()
        return sorted((*one.partition, one.transactional_id or "", *one[2:5]) for one in opened)


class ModelNames:
    def __init__(self, meta: ModelMeta, transactions: ModelTransactions) -> None:
        self._meta = meta
        self._transactions = transactions
        self._begun: dict[str, tuple[int, int, int]] = {}

    async def begin_version(self, name: str, version: int, fresh_id: int) -> tuple[int, int, int, bool]:
        begun, producer_id, epoch = self._begun.get(name, (-1, fresh_id, -1))
        if version <= begun:
            return begun, producer_id, epoch, True
        epoch = await self._meta.begin_version(producer_id)
        self._begun[name] = version, producer_id, epoch
        return version, producer_id, epoch, False

    async def update(self, changes: Mapping[str, IdChange]) -> Updated[list[TransactionRecord]]:
        return await self._transactions.update(changes, lambda before, _: decide(before, changes))

    async def records(self) -> list[TransactionRecord]:
        return [_untimed(record) for _, record in sorted(self._transactions.records.items())]

    async def opened(self) -> list[Any]:
        names = {
            record.producer_id: name
            for name, record in self._transactions.records.items()
            if record.state == ONGOING
        }
        partitions = {row.log_id: row.partition_id for row in self._meta.live_logs}
        found: list[Any] = []
        for log_id in partitions:
            epochs = {row.producer_id: row.epoch for row in await self._meta.producers(log_id)}
            found += [
                (
                    *partitions[log_id],
                    names.get(key.producer_id, ""),
                    key.producer_id,
                    epochs[key.producer_id],
                    first,
                )
                for key, first in self._meta.open_in_logs().items()
                if key.log_id == log_id
            ]
        return sorted(found)


def untimed_update(updated: Updated[list[TransactionRecord]]) -> Sequence[Any]:
    """Return what two implementations must answer alike."""
    return [updated.result, sorted(map(tuple, updated.partitions)), updated.has_offsets]
