"""Sends the batches of an asyncio producer, the counterpart of ``sending``."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from .. import forks
from ..async_client import AsyncClient
from ..errors import ClosedError, ConnectionLostError, SteleClientError, UnknownTopicError
from ..operations.produce import InitProducerId, RecordOutcome
from ..records import OutgoingRecord, RecordMetadata
from .core import ProducerCore
from .lane import Batch

Acked = asyncio.Future[RecordMetadata]


class AsyncSending:
    """The records of a producer until they are sent, in a task per batch.

    It is bound to the event loop of its first call.
    """

    def __init__(self, client: AsyncClient, core: ProducerCore[Any]) -> None:
        self._client = client
        self._core = core
        self.is_closed: bool = False
        self._room_waiters: deque[tuple[int, asyncio.Future[bool]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._identity_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_pump_due = False
        forks.in_child(self._renew_in_child)

    def _renew_in_child(self) -> None:
        """Begin again without records; tasks and futures are of the parent's event loop."""
        self._core.restart()
        self._room_waiters = deque()
        self._tasks = set()
        self._identity_task = None
        self._timer = None
        self._is_pump_due = False

    # ── records in ──

    def put(
        self,
        record: OutgoingRecord,
        size: int,
        partition: int | None,
        count: int,
        *,
        is_counted: bool,
        has_room: bool = False,
    ) -> Acked | None:
        """Accept a record; None if there is no room, unless ``wait_for_room`` has reserved it.

        See ``ProducerCore.put``. Raises ClosedError.
        """
        core = self._core
        if self.is_closed:
            raise ClosedError("producer")
        if not has_room and (self._room_waiters or not core.reserve(size)):
            return None
        loop = asyncio.get_running_loop()
        acked: Acked = loop.create_future()
        core.put(record, size, partition, count, acked, loop.time(), is_counted=is_counted)
        self._pump_soon()
        return acked

    def outcome(self, acked: Acked) -> Acked:
        """Return what to await for the receipt."""
        return acked

    async def wait_for_room(self, size: int) -> None:
        """Wait until ``size`` bytes of the buffer are reserved, in turn. Raises ClosedError."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._room_waiters.append((size, waiter))
        try:
            has_room = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self._core.release(size)
                self._wake_waiters()
            raise
        if not has_room:
            raise ClosedError("producer")

    def _wake_waiters(self) -> None:
        while self._room_waiters:
            size, waiter = self._room_waiters[0]
            if not waiter.done():
                if not self._core.reserve(size):
                    return
                waiter.set_result(True)
            self._room_waiters.popleft()

    # ── batches out ──

    def _pump_soon(self) -> None:
        if not self._is_pump_due:
            self._is_pump_due = True
            # After this iteration of the loop, so that records sent together share a batch.
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pump_due = False
        loop = asyncio.get_running_loop()
        due = self._core.due(loop.time())
        for partition, batch in due.batches:
            task = loop.create_task(self._send(partition, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if due.needs_producer_id and (self._identity_task is None or self._identity_task.done()):
            self._identity_task = loop.create_task(self._init_producer_id())
        self._wake_waiters()
        self._cancel_timer()
        if due.wake_at_s is not None:
            self._timer = loop.call_at(due.wake_at_s, self._pump_soon)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _send(self, partition: int, batch: Batch) -> None:
        core = self._core
        outcome: list[RecordOutcome] | SteleClientError
        try:
            outcome = await self._client.transport.call(
                core.operation(partition, batch), timeout_s=core.options.request_timeout_s
            )
        except SteleClientError as error:
            outcome = error
        except asyncio.CancelledError:
            outcome = ConnectionLostError("the producer was closed before the response arrived")
        except Exception as error:  # noqa: BLE001 (the boundary of a task: a record must have an outcome)
            outcome = SteleClientError(f"the batch could not be sent: {error!r}")
        if isinstance(outcome, UnknownTopicError):
            self._client.forget_partition_count(core.topic)
        core.finish(partition, batch, outcome, asyncio.get_running_loop().time())
        self._pump_soon()

    async def _init_producer_id(self) -> None:
        core = self._core
        try:
            answer = await self._client.call(InitProducerId(), timeout_s=core.options.request_timeout_s)
        except SteleClientError as error:
            core.lack_producer_id(error, asyncio.get_running_loop().time())
        else:
            core.set_producer_id(*answer)
        self._identity_task = None
        self._pump_soon()

    # ── flush and close ──

    async def flush(self, timeout_s: float | None) -> None:
        await self._settled(timeout_s)
        self._core.raise_failures()

    async def _settled(self, timeout_s: float | None) -> None:
        """Wait until all records have an outcome, or for ``timeout_s``."""
        waiting = self._core.flush()
        if waiting:
            self._pump_soon()
            await asyncio.wait(waiting, timeout=timeout_s)

    async def close(self, timeout_s: float | None) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        try:
            await self._settled(timeout_s)
        finally:
            await self._stop()
        self._core.raise_failures()

    async def _stop(self) -> None:
        self._cancel_timer()
        self._core.fail_unsent(ClosedError("producer"))
        tasks = [*self._tasks, *([self._identity_task] if self._identity_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Batches in flight returned to their lanes for a retry.
        self._core.fail_unsent(ClosedError("producer"))
        for _, waiter in self._room_waiters:
            if not waiter.done():
                waiter.set_result(False)
        # Lets tasks that await a future see its outcome before close returns.
        await asyncio.sleep(0)
