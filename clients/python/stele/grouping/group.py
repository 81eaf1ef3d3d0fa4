# Generated from async_group.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking group."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

from ..concurrency import Closing, Worker, sleep
from ..errors import ClosedError, SteleClientError
from ..operations.leases import Ack, Extend, Nack
from ..records import Polled
from ..transport.base import retry_pause_s
from ..transport.transport import Caller
from .core import BatchCore, GroupCore, GroupSettings, LeaseTimes

R = TypeVar("R")


class Batch(BatchCore):
    """Records under a lease, acknowledged at the end of a ``with`` block.

    ::

        with batch:
            for record in batch: ...

    The block extends the lease while it runs. Iterating and leaving the block raise
    ``LeaseLostError`` once the lease is lost. An exception returns the records for
    redelivery; see ``GroupOptions.on_error``.
    """

    def __init__(self, group: Group, polled: Polled) -> None:
        super().__init__(polled)
        self._group = group
        self._keeper = Worker("stele-lease")

    def __enter__(self) -> Self:
        self._is_entered = True
        self._keeper.start(self._keep)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._keeper.stop()
        if self.is_in_transaction:
            return error is not None and self._group.absorbs(self, error)
        if error is None:
            self.check()
            self.ack()
            return False
        return not self.is_of_parent and self._group.failed(self, error)

    def _keep(self) -> None:
        options = self._group.options
        times = LeaseTimes(options, time.monotonic())
        while self._lost is None and not self._keeper.stops_within(options.lease_s / 3):
            if self.is_in_transaction:
                return
            self._lost = times.overdue(time.monotonic())
            if self._lost is not None:
                return
            try:
                self._group.extend(self.lease)
            except SteleClientError as error:
                if not self.is_in_transaction:
                    self._lost = times.not_extended(error, time.monotonic())
            else:
                times.extended(time.monotonic())

    @property
    def group_id(self) -> str:
        return self._group.group

    def ack(self) -> None:
        """Commit the records; ``with`` does this. Raises ``LeaseLostError``."""
        self.check_process()
        self._group.ack(self.lease)

    def nack(self) -> None:
        """Return the records for immediate redelivery."""
        self.check_process()
        self._group.nack(self.lease)


class Group(GroupCore, Closing):
    """Reads topics as one of the readers of a group; created by ``Client.group``.

    ::

        with client.group("billing", "orders") as group:
            for batch in group:
                with batch:
                    for record in batch: ...

    Any number of readers in any number of processes share the partitions. Each
    partition is handled by one reader at a time, in order. The only state of a reader
    is its current lease: if it dies, the others get its records when the lease expires.
    """

    def __init__(self, client: Caller, group: str, *topics: str, **options: Unpack[GroupSettings]) -> None:
        """Use ``client`` for this group alone; ``close`` closes it. See ``GroupOptions``.

        Raises:
            ValueError: no topic was given, or an option is invalid.
        """
        super().__init__(group, topics, options)
        self._client = client
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._client.close()

    def __iter__(self) -> Iterator[Batch]:
        while not self._is_closed:
            batch = self.poll()
            if batch is not None:
                yield batch

    def poll(self) -> Batch | None:
        """Return the next batch; None if no record came within ``wait_s``.

        Retries while the broker is down.

        Raises:
            SteleClientError: an error that is not retriable.
        """
        if self._is_closed:
            raise ClosedError("group")
        operation = self.options.poll(self.group, self.topics)
        failures = 0
        while True:
            try:
                polled = self._client.call(
                    operation, timeout_s=self.options.wait_s + self._client.config.timeout_s
                )
            except SteleClientError as error:
                if not error.retriable:
                    raise
                failures += 1
                sleep(retry_pause_s(failures))
            else:
                self.report_skipped(polled)
                return None if polled.lease is None else Batch(self, polled)

    def ack(self, lease: str) -> None:
        self._until_done(Ack(group=self.group, lease=lease))

    def nack(self, lease: str) -> None:
        self._client.call(Nack(group=self.group, lease=lease))

    def extend(self, lease: str) -> None:
        self._client.call(Extend(group=self.group, lease=lease, lease_ms=self.options.lease_ms))

    def _until_done(self, operation: Ack) -> None:
        """Retry while the broker is down.

        Acks are idempotent, and fail once the lease expired.
        """
        deadline_s = time.monotonic() + self.options.lease_s
        failures = 0
        while True:
            try:
                return self._client.call(operation)
            except SteleClientError as error:
                if not error.retriable or time.monotonic() > deadline_s:
                    raise
                failures += 1
            sleep(retry_pause_s(failures))

    def failed(self, batch: Batch, error: BaseException) -> bool:
        """Dead-letter or return a batch that failed with ``error``.

        True suppresses the error.
        """
        letters = self.dead_letters(batch, error)
        if letters is not None:
            self._client.produce_many(*letters)
            batch.ack()
            return True
        # If this does not reach the broker, the lease expires.
        with contextlib.suppress(SteleClientError):
            batch.nack()
        return self.absorbs(batch, error)
