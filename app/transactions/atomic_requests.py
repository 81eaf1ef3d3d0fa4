"""A whole transaction in one request: records, leases and offsets, all or nothing (ADR-0034).

Each request that runs has one of a few transactional ids of the broker's own, whose producer stays
from one request to the next. The answer to a request with an idempotency key is stored together with
the outcome of its transaction, so it exists if, and only if, the transaction committed::

    records appended, leases and offsets staged ─▶ answer made ─▶ outcome and answer stored ─▶ markers ─▶ answer

Once begun, a request runs to its end, even if its client disconnects. What a crash interrupts before
the outcome is stored is aborted at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass

from ..broker.broker import Broker
from ..broker.producing.produce import Acks, Produced
from ..clock import Clock
from ..cluster.transaction_store import StoredAnswer, TransactionChange
from ..errors import (
    ConcurrentTransactions,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    RequestTimedOut,
    SteleError,
)
from ..settings import Settings
from .answer_store import Answers
from .interface import TransactionService
from .messages import ProducerIdentity
from .states import TransactionState
from .writes import RowBatch, Settlements, TransactionWrites

logger = logging.getLogger(__name__)

# Transactional ids that start like this are the broker's own.
INTERNAL_PREFIX = "__stele."
ATOMIC_PREFIX = f"{INTERNAL_PREFIX}atomic-"
# Requests that run at a time, each with one of the broker's own transactional ids; more wait.
_REQUESTS_MAX = 64
# Interval of the check whether a transaction has ended.
_PAUSE_S = 0.02
_WHAT = "the transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencyKey:
    """The client's key and the digest of the body, which identify a repetition.

    ``owner`` is the user who logged in: the keys of two users are different keys.
    """

    key: str
    digest: bytes
    owner: str = ""

    @property
    def stored_as(self) -> str:
        return f"{self.owner}\n{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicRequest:
    """``answer_of`` makes the answer of the receipts of ``batches``."""

    batches: Sequence[RowBatch]
    settlements: Settlements
    answer_of: Callable[[Sequence[Produced]], bytes]
    key: IdempotencyKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomicAnswer:
    """The answer to a request.

    ``is_repeated``: the request was committed before, and this is its answer of that time.
    """

    body: bytes
    is_repeated: bool = False


@dataclass(slots=True)
class _Slot:
    transactional_id: str
    producer: ProducerIdentity | None = None


class AtomicRequests:
    def __init__(
        self,
        *,
        broker: Broker,
        answers: Answers,
        transactions: TransactionService,
        writes: TransactionWrites,
        clock: Clock,
        settings: Settings,
        prefix: str = ATOMIC_PREFIX,
    ) -> None:
        self._broker = broker
        self._answers = answers
        self._prefix = prefix
        self._transactions = transactions
        self._writes = writes
        self._clock = clock
        self._timeout_ms = settings.request_timeout_ms
        # Longer than the phases of a request, so that the broker does not abort one that still runs.
        self._transaction_timeout_ms = min(4 * self._timeout_ms, settings.transaction_max_timeout_ms)
        self._settings = settings
        self._running_keys: set[str] = set()
        self._tasks: set[asyncio.Task[AtomicAnswer]] = set()
        # The slot that was used last is taken first, so that few ids are used by few clients.
        self._free = [_Slot(f"{prefix}{number}") for number in reversed(range(_REQUESTS_MAX))]
        self._room = asyncio.Semaphore(_REQUESTS_MAX)

    # ── life ──

    async def open(self) -> None:
        """Abort what the last run left open, and learn which keys have an answer.

        Raises ``GroupStoreFailed``, ``StorageError``.
        """
        for listing in await self._transactions.list(states=[TransactionState.ONGOING.value]):
            if listing.transactional_id.startswith(self._prefix):
                await self._transactions.abort(listing.transactional_id)
        await self._answers.open()

    async def close(self) -> None:
        """Wait for the requests that are running; the groups refuse their next steps."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def running(self) -> int:
        return len(self._tasks)

    # ── requests ──

    async def repeated(self, key: IdempotencyKey) -> AtomicAnswer | None:
        """Return the answer of a request that was committed with ``key``; None if there is none.

        Raises:
            IdempotencyKeyReused: it had another body.
            IdempotencyKeyInUse: it is still running.
            GroupStoreFailed: the answer cannot be read.
        """
        if key.stored_as in self._running_keys:
            raise IdempotencyKeyInUse(key.key)
        stored = await self._answers.find(key.stored_as, now_ms=self._clock.now_ms())
        if stored is None:
            return None
        if stored.digest != key.digest:
            raise IdempotencyKeyReused(key.key)
        return AtomicAnswer(body=zlib.decompress(stored.answer), is_repeated=True)

    async def execute(self, request: AtomicRequest) -> AtomicAnswer:
        """Commit a request, or nothing of it. When this returns, readers see all of it.

        Raises:
            RequestTimedOut: it was not confirmed in time, and may still commit.
            IdempotencyKeyReused, IdempotencyKeyInUse: as ``repeated``.
            SteleError: as ``TransactionWrites.append`` and ``settle``; nothing was committed.
        """
        if request.key is not None:
            repeated = await self.repeated(request.key)
            if repeated is not None:
                return repeated
            if request.key.stored_as in self._running_keys:
                raise IdempotencyKeyInUse(request.key.key)
            self._running_keys.add(request.key.stored_as)
        task = asyncio.get_running_loop().create_task(self._run(request), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        # One timeout for what precedes the commit, which aborts; one for the commit.
        done, _ = await asyncio.wait({task}, timeout=2 * self._timeout_ms / 1000)
        if not done:
            raise RequestTimedOut(_WHAT, timeout_ms=2 * self._timeout_ms)
        return task.result()

    def _ended(self, task: asyncio.Task[AtomicAnswer]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # The client may have gone; then no caller retrieves the error.
            task.exception()

    async def _run(self, request: AtomicRequest) -> AtomicAnswer:
        try:
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await self._room.acquire()
            except TimeoutError:
                raise ConcurrentTransactions(f"{self._prefix}*") from None
            slot = self._free.pop()
            try:
                return await self._transact(slot, request)
            finally:
                self._free.append(slot)
                self._room.release()
        finally:
            if request.key is not None:
                self._running_keys.discard(request.key.stored_as)

    async def _transact(self, slot: _Slot, request: AtomicRequest) -> AtomicAnswer:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                producer = await self._begin(slot)
                # A failure of the machine ends the request, too.
                receipts = await self._writes.append(
                    slot.transactional_id,
                    producer,
                    request.batches,
                    acks=Acks.LEADER,
                    timeout_ms=self._timeout_ms,
                )
                await self._writes.settle(slot.transactional_id, producer, request.settlements)
            body = request.answer_of(receipts)
            changes = self._plan(request.key, body)
            slot.producer = await self._commit(slot.transactional_id, producer, changes)
        except TimeoutError:
            await self._abort(slot)
            raise RequestTimedOut(_WHAT, timeout_ms=self._timeout_ms) from None
        except BaseException:
            await self._abort(slot)
            raise
        self._answers.take(changes)
        return AtomicAnswer(body=body)

    async def _begin(self, slot: _Slot) -> ProducerIdentity:
        producer = slot.producer
        if producer is None or not await self._transactions.is_current(slot.transactional_id, producer):
            producer = await self.begin(slot.transactional_id, timeout_ms=self._transaction_timeout_ms)
        slot.producer = producer
        return producer

    async def begin(self, transactional_id: str, *, timeout_ms: int) -> ProducerIdentity:
        """Begin with an id as ``init_producer_id``, after aborting what was open.

        It waits for the end of the abort, unless that waits for an operator, as on a full disk.

        Raises as ``init_producer_id``, and ``StorageError``: what was open cannot be ended now.
        """
        while True:
            try:
                return await self._transactions.init_producer_id(transactional_id, timeout_ms=timeout_ms)
            except ConcurrentTransactions:
                await asyncio.sleep(_PAUSE_S)
                failure = self._transactions.failure_of_end(transactional_id)
                if failure is not None:
                    raise failure from None

    def _plan(self, key: IdempotencyKey | None, body: bytes) -> Sequence[TransactionChange]:
        if key is None:
            return ()
        return self._answers.plan(
            StoredAnswer(
                key=key.stored_as,
                digest=key.digest,
                answer=zlib.compress(body, 1),
                created_at_ms=self._clock.now_ms(),
            )
        )

    async def _commit(
        self, transactional_id: str, producer: ProducerIdentity, changes: Sequence[TransactionChange]
    ) -> ProducerIdentity:
        try:
            return await self._transactions.end(
                transactional_id, producer, commit=True, bumps_epoch=True, also=changes
            )
        except SteleError as error:
            if not await self._is_committing(transactional_id):
                raise
            # The outcome is stored, and markers could not be appended: they are tried again.
            logger.warning("a request is committed as soon as its markers can be appended: %s", error)
        while True:
            await asyncio.sleep(_PAUSE_S)
            try:
                return await self._transactions.end(transactional_id, producer, commit=True, bumps_epoch=True)
            except ConcurrentTransactions:
                continue

    async def _is_committing(self, transactional_id: str) -> bool:
        described = await self._transactions.describe(transactional_id)
        return described.state is TransactionState.PREPARE_COMMIT

    async def _abort(self, slot: _Slot) -> None:
        """Abort what the slot has open; if that fails, its next request or the next start does it."""
        producer, slot.producer = slot.producer, None
        if producer is None:
            return
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while True:
                    try:
                        slot.producer = await self._transactions.end(
                            slot.transactional_id, producer, commit=False, bumps_epoch=True
                        )
                    except ConcurrentTransactions:
                        # Something that was staged is on its way to the store.
                        await asyncio.sleep(_PAUSE_S)
                    else:
                        return
        except (SteleError, TimeoutError) as error:
            logger.warning("a request that failed is aborted later: %r", error)
