"""The transactions of a broker with shared storage (ADR-0055).

Each request is one transaction of the database: it locks the row of its transactional id, restores the machine of the
id from it, asks that what to do, and stores the outcome, with the markers and the offsets of a transaction that ends.
So any broker serves any request, nothing is remembered between two, and nothing is left to be recovered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from stele.wire.record_batch import BatchHeader

from ..broker.broker import Broker
from ..clock import Clock
from ..cluster.group_store import StoreChange
from ..cluster.shared_transactions import (
    Decide,
    EndOfTransaction,
    PartitionKey,
    SharedTransactionCounts,
    SharedTransactionStore,
    TransactionUpdate,
    Updated,
)
from ..cluster.transaction_store import StoredAnswer, TransactionRecord
from ..errors import (
    BrokerClosing,
    CoordinatorNotAvailable,
    MirroredTopic,
    SteleError,
    StorageError,
    TooManyTransactionalIds,
    TopicError,
    TransactionalIdNotFound,
    UnknownProducerMapping,
)
from ..groups.base.checks import check_group_id
from ..groups.base.messages import CommitRequest, Results
from ..groups.services import GroupServices
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from ..storage.transactional_produce import TransactionalProduce
from .descriptions import description_of, listings_of, open_of_producer
from .messages import (
    PartitionTransaction,
    ProducerIdentity,
    TransactionCounts,
    TransactionDescription,
    TransactionListing,
)
from .plans import EndPlan, Moment
from .request_checks import check_groups, check_timeout, check_transactional_id, refused_partitions
from .shared_joint_commits import SharedJointCommits
from .shared_requests import (
    NeedsProducerId,
    NeedsProducerIds,
    Request,
    Result,
    abort,
    abort_overdue,
    aborts_of_torn,
    end,
    machine,
    opened,
    producer_after,
    update_of,
)
from .states import TransactionState
from .timeouts import EXPIRATION_CHECK_INTERVAL_MS
from .transaction import Transaction

logger = logging.getLogger(__name__)

T = TypeVar("T")

_OVERDUE_AT_ONCE = 100
# Offsets of transactions that ended at other brokers: requests that read them do not wait for this.
_SETTLE_INTERVAL_S = 0.25


class SharedTransactionCoordinator:
    """Implements ``TransactionService`` and ``TransactionGate`` over ``store``."""

    def __init__(
        self,
        *,
        store: SharedTransactionStore,
        broker: Broker,
        groups: GroupServices,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._store = store
        self._broker = broker
        self._groups = groups
        self._clock = clock
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []
        self._known = SharedTransactionCounts(ids=0, open=0, oldest_ms=0)
        self._committed = self._aborted = self._timed_out = 0
        self._is_closing = False
        self.joint_commits = SharedJointCommits(store, self)

    # ── life ──

    async def open(self) -> None:
        """Begin to end what takes too long, and to settle what ended at other brokers."""
        self._broker.set_transaction_gate(self)
        self._tasks = [
            asyncio.create_task(
                self._repeat(self._settings.transaction_check_interval_ms / 1000, self.check)
            ),
            asyncio.create_task(self._repeat(EXPIRATION_CHECK_INTERVAL_MS / 1000, self.expire)),
            asyncio.create_task(self._repeat(_SETTLE_INTERVAL_S, self._settle_groups)),
        ]

    def begin_close(self) -> None:
        """Refuse all calls from now on."""
        self._is_closing = True

    async def close(self) -> None:
        """End the background work; open transactions stay open."""
        self.begin_close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, interval_s: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await work()
            except SteleError as error:
                logger.warning("transactions are looked after later: %s", error)
            except Exception:  # the edge of a task: the next time may succeed
                logger.exception("transactions could not be looked after")

    def _check_open(self) -> None:
        if self._is_closing:
            raise BrokerClosing

    def _check_room(self, transactional_id: str) -> None:
        limit = self._settings.transactional_ids_max
        if self._known.ids >= limit:
            raise TooManyTransactionalIds(transactional_id, limit=limit)

    # ── one id ──

    async def fresh_id(self) -> int:
        return (await self._broker.init_producer_id())[0]

    async def _ask(
        self,
        transactional_id: str,
        request: Request,
        *,
        producer: ProducerIdentity | None = None,
        answer: StoredAnswer | None = None,
    ) -> Result:
        """Do what the machine of an id says to a request, and return that.

        ``producer``: the id must exist.
        """
        self._check_open()
        check_transactional_id(transactional_id)
        kept_ms = self._settings.idempotency_key_expiration_ms
        fresh_id: int | None = None

        def decide(records: Mapping[str, TransactionRecord], now_ms: int) -> TransactionUpdate[Result]:
            now = Moment(now_ms, now_ms)
            if producer is not None and transactional_id not in records:
                raise UnknownProducerMapping(transactional_id, producer_id=producer.producer_id)
            result = request(machine(records, transactional_id, now), fresh_id, now)
            return update_of(result, [result], answer=answer, answer_kept_ms=kept_ms)

        while True:
            try:
                updated = await self.update([transactional_id], decide)
            except NeedsProducerId:
                fresh_id = await self.fresh_id()
                continue
            await self.ended(updated, [updated.result])
            return updated.result

    async def update(self, ids: Collection[str], decide: Decide[T]) -> Updated[T]:
        """Update the store like its own ``update``, but abort torn transactions of ``ids`` first.

        A transaction is torn if the database has lost a part of it (ADR-0071).
        """
        torn: list[EndPlan] = []
        fresh_ids: dict[str, int] = {}

        def decide_of_whole(
            records: Mapping[str, TransactionRecord], now_ms: int
        ) -> TransactionUpdate[T | None]:
            torn[:] = aborts_of_torn(records, fresh_ids, Moment(now_ms, now_ms))
            if torn:
                return update_of(None, torn)
            return cast("TransactionUpdate[T | None]", decide(records, now_ms))

        while True:
            try:
                updated = await self._store.update(ids, decide_of_whole)
            except NeedsProducerIds as needed:
                for transactional_id in needed.ids:
                    fresh_ids[transactional_id] = await self.fresh_id()
                continue
            if not torn:
                return cast("Updated[T]", updated)
            await self.ended(updated, torn)
            for plan in torn:
                logger.warning(
                    "the transaction of %r is aborted: it was open when another history of the database began",
                    plan.record.transactional_id,
                )

    async def ended(self, updated: Updated[Any], results: Sequence[Result]) -> None:
        """Show readers of this broker what ended, and count it.

        Raises:
            CoordinatorNotAvailable: this broker does not know the markers. Whoever repeats the request is told how the
                transaction has ended.
        """
        for result in results:
            if isinstance(result, EndPlan):
                if result.is_commit:
                    self._committed += 1
                else:
                    self._aborted += 1
        if updated.partitions:
            await self._know_markers(updated)
        if updated.has_offsets:
            await self._settle_groups()

    async def _know_markers(self, updated: Updated[Any]) -> None:
        """Look for the markers before anybody is told of them: the failover that loses them is reported (ADR-0071)."""
        names = self._names(updated.partitions)
        try:
            await self._broker.refresh(names)
            histories = {self._broker.oldest_leader_epoch(*name) for name in names}
        except StorageError as error:
            raise CoordinatorNotAvailable(str(error)) from error
        except TopicError:
            # It was deleted meanwhile, and its markers with it.
            return
        if any(history > updated.history for history in histories):
            raise CoordinatorNotAvailable("the database has begun another history, and may have lost the end")

    def _names(self, partitions: Sequence[PartitionKey]) -> list[TopicPartition]:
        names: list[TopicPartition] = []
        for topic_id, number in partitions:
            topic = self._broker.topic_by_id(topic_id.bytes)
            if topic is not None:
                names.append(TopicPartition(topic.name, number))
        return names

    async def _settle_groups(self) -> None:
        for part in self._groups.all():
            # A request that reads these offsets settles them first, and gets the error.
            with suppress(SteleError):
                await part.coordinator.settle_ended()

    # ── producers ──

    async def init_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        unless_open: bool = False,
    ) -> ProducerIdentity:
        check_timeout(transactional_id, timeout_ms, limit=self._settings.transaction_max_timeout_ms)

        def begin(transaction: Transaction, fresh_id: int | None, now: Moment) -> Result:
            if transaction.is_new:
                self._check_room(transactional_id)
            if fresh_id is None and (transaction.is_new or transaction.is_exhausted):
                raise NeedsProducerId
            return transaction.begin(
                expected, timeout_ms=timeout_ms, fresh_id=fresh_id, unless_open=unless_open, now=now
            )

        while True:
            result = await self._ask(transactional_id, begin)
            # What was open is aborted now; the same request goes on from there.
            if not isinstance(result, EndPlan):
                return producer_after(result)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, SteleError | None]:
        self._check_open()
        await self._broker.try_to_find_topics({partition.topic for partition in partitions})
        errors = await refused_partitions(self._broker, partitions)
        if errors:
            return errors

        def add(transaction: Transaction, _: int | None, now: Moment) -> Result:
            return transaction.add(producer, partitions=partitions, now=now)

        await self._ask(transactional_id, add, producer=producer)
        return dict.fromkeys(partitions)

    async def add_offsets(self, transactional_id: str, producer: ProducerIdentity, group: str) -> None:
        check_group_id(group)

        def add(transaction: Transaction, _: int | None, now: Moment) -> Result:
            check_groups(transaction, group)
            return transaction.add(producer, groups=[group], now=now)

        await self._ask(transactional_id, add, producer=producer)

    async def commit_offsets(
        self, transactional_id: str, producer: ProducerIdentity, request: CommitRequest, *, adds_group: bool
    ) -> Results:
        check_group_id(request.group)
        groups = self._groups.of(request.group).coordinator
        groups.table.check_open()
        await self._broker.try_to_find_topics({offset.topic for offset in request.offsets})

        def add(transaction: Transaction, _: int | None, now: Moment) -> Result:
            if not adds_group:
                transaction.check_commit(producer, request.group)
                return None
            check_groups(transaction, request.group)
            return transaction.add(producer, groups=[request.group], now=now)

        await self._ask(transactional_id, add, producer=producer)
        request = await groups.checked(request)
        return await groups.stage_after_ended(
            request, producer_id=producer.producer_id, producer_epoch=producer.epoch
        )

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        bumps_epoch: bool,
        also: Sequence[StoreChange] = (),
    ) -> ProducerIdentity:
        answers = [change for change in also if isinstance(change, StoredAnswer)]

        def request(transaction: Transaction, fresh_id: int | None, now: Moment) -> Result:
            return end(
                transaction, producer, commit=commit, bumps_epoch=bumps_epoch, fresh_id=fresh_id, now=now
            )

        answer = answers[0] if answers else None
        return producer_after(await self._ask(transactional_id, request, producer=producer, answer=answer))

    def failure_of_end(self, transactional_id: str) -> SteleError | None:
        """Return None: an end and its markers are stored together, or not at all."""
        return None

    async def is_current(self, transactional_id: str, producer: ProducerIdentity) -> bool:
        record = await self._store.record(transactional_id)
        return (
            record is not None
            and ProducerIdentity(record.producer_id, record.epoch) == producer
            and not TransactionState(record.state).is_open
        )

    # ── the gate: the commit of a batch judges it ──

    def admit(
        self, produce: TransactionalProduce, topic_partition: TopicPartition, header: BatchHeader
    ) -> None:
        self._check_open()

    # ── what takes too long ──

    async def check(self) -> None:
        """Abort transactions past their timeout; learn how many there are."""
        while overdue := await self._store.overdue(_OVERDUE_AT_ONCE):
            for transactional_id in overdue:
                if await self._ask(transactional_id, abort_overdue) is not None:
                    self._timed_out += 1
                    logger.warning(
                        "the transaction of %r is aborted: it was open for longer than its timeout",
                        transactional_id,
                    )
            if len(overdue) < _OVERDUE_AT_ONCE:
                break
        self._known = await self._store.counts()

    async def expire(self) -> None:
        """Forget ids and answers that no client has used for long."""
        settings = self._settings
        expired = await self._store.expire(
            settings.transactional_id_expiration_ms,
            settings.idempotency_key_expiration_ms,
            settings.idempotency_keys_max,
        )
        if expired:
            logger.info("%d transactional ids expired", expired)

    # ── operators ──

    async def describe(self, transactional_id: str) -> TransactionDescription:
        self._check_open()
        check_transactional_id(transactional_id)
        record = await self._store.record(transactional_id)
        if record is None:
            raise TransactionalIdNotFound(transactional_id)
        transaction = self._restored(record)
        partitions = set(transaction.partitions)
        if transaction.state.is_open:
            logs = await self._store.open_in_logs(producer_id=record.producer_id)
            partitions.update(self._names([hold.partition for hold in logs]))
        return description_of(transaction, sorted(partitions))

    async def list(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int = -1,
    ) -> list[TransactionListing]:
        self._check_open()
        return await listings_of(
            map(self._restored, await self._store.records()),
            states=states,
            producer_ids=producer_ids,
            min_duration_ms=min_duration_ms,
            now_ms=self._clock.now_ms(),
        )

    def _restored(self, record: TransactionRecord) -> Transaction:
        now_ms = self._clock.now_ms()
        return Transaction.restored(record, now=Moment(now_ms, now_ms))

    async def abort(self, transactional_id: str) -> None:
        self._check_open()
        check_transactional_id(transactional_id)
        if await self._store.record(transactional_id) is None:
            raise TransactionalIdNotFound(transactional_id)
        await self._ask(transactional_id, abort)

    async def open_in(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[PartitionTransaction]]:
        wanted = None if partitions is None else set(partitions)
        only: PartitionKey | None = None
        if wanted is not None and len(wanted) == 1:
            (name,) = wanted
            topic = self._broker.topic(name.topic)
            only = (topic.topic_id, name.partition)
        found: dict[TopicPartition, list[PartitionTransaction]] = {}
        for hold in await self._store.open_in_logs(partition=only):
            for name in self._names([hold.partition]):
                if wanted is None or name in wanted:
                    listed = found.setdefault(name, [])
                    listed.append(opened(hold, name, holds_back=not listed))
        return found

    async def abort_partition(
        self, topic_partition: TopicPartition, *, producer_id: int, epoch: int, coordinator_epoch: int
    ) -> None:
        self._check_open()
        if mirror := self._broker.topic(topic_partition.topic).config.mirror:
            raise MirroredTopic(topic_partition.topic, mirror)
        opened_here = (await self.open_in([topic_partition])).get(topic_partition, [])
        here = open_of_producer(opened_here, topic_partition, producer_id=producer_id, epoch=epoch)
        transactional_id = here[0].transactional_id
        if transactional_id is not None:
            await self.abort(transactional_id)
            return
        hanging = EndOfTransaction(producer_id, epoch, epoch, is_commit=False)
        updated = await self.update([], lambda _, __: TransactionUpdate(result=None, ends=[hanging]))
        await self.ended(updated, ())

    @property
    def counts(self) -> TransactionCounts:
        """Those of this broker, except for ``ids``, ``open`` and ``oldest_ms``.

        They are those of the cluster, as the last check found them.
        """
        return TransactionCounts(
            ids=self._known.ids,
            open=self._known.open,
            oldest_ms=self._known.oldest_ms,
            committed=self._committed,
            aborted=self._aborted,
            timed_out=self._timed_out,
        )
