"""The blocking group; see ``async_group``, beside which it is written out as ``client`` is beside ``async_client``."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack

from ..client import Client
from ..errors import ClosedError, GroupError, LeaseLostError, SteleClientError
from ..operations.groups import Ack, Extend, Nack
from ..records import Polled, Record
from ..transport.base import retry_pause_s
from .core import BatchCore, GroupOptions, GroupSettings, dead_letters

logger = logging.getLogger(__name__)


class Batch(BatchCore):
    """Records that are this client's for a while. Left without an exception, they are acknowledged.

    ::

        with batch:
            for record in batch: ...

    Iterating raises ``LeaseLostError`` as soon as the lease is lost, and so does leaving the block.
    """

    def __init__(self, group: Group, polled: Polled) -> None:
        super().__init__(polled)
        self._group = group
        self._lost: SteleClientError | None = None
        self._keeper: threading.Thread | None = None
        self._left = threading.Event()

    def __iter__(self) -> Iterator[Record[bytes]]:
        for record in self.records:
            self.check()
            yield record

    def check(self) -> None:
        """Raises ``LeaseLostError`` if the records are somebody else's by now."""
        if self._lost is not None:
            raise self._lost.twin()

    def __enter__(self) -> Self:
        self._keeper = threading.Thread(target=self._keep, name="stele-lease", daemon=True)
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._keeper is not None
        self._left.set()
        self._keeper.join()
        if error is None:
            self.check()
            self.ack()
            return False
        return self._group.failed(self, error)

    def _keep(self) -> None:
        options = self._group.options
        lease_ends_s = time.monotonic() + options.lease_s
        handling_ends_s = time.monotonic() + options.handling_s_max
        while not self._left.wait(options.lease_s / 3):
            if time.monotonic() > handling_ends_s:
                self._lost = LeaseLostError(
                    f"the batch was not handled within {options.handling_s_max} s; raise handling_s_max, "
                    "or take fewer records at once"
                )
                return
            try:
                self._group.extend(self.lease)
                lease_ends_s = time.monotonic() + options.lease_s
            except SteleClientError as error:
                if isinstance(error, GroupError) or (not error.retriable or time.monotonic() > lease_ends_s):
                    self._lost = LeaseLostError(f"the lease is lost: {error}")
                    return

    def ack(self) -> None:
        """Commit them; ``with`` does it by itself. Raises ``LeaseLostError``."""
        self._group.ack(self.lease)

    def nack(self) -> None:
        """Give them back, to be delivered again at once."""
        self._group.nack(self.lease)


class Group:
    """Reads topics together with all others that read as the same group; ``Client.group`` makes one.

    ::

        with client.group("billing", "orders") as group:
            for batch in group:
                with batch:
                    for record in batch: ...

    Nothing is kept here but the lease of the batch at hand: any number of these, in any
    number of processes, share the partitions, and one that dies is made up for by the
    others when its lease runs out. Each partition is handled by one at a time, in order.
    """

    def __init__(self, client: Client, group: str, *topics: str, **options: Unpack[GroupSettings]) -> None:
        """See ``GroupOptions``. Raises ValueError for one that makes no sense."""
        if not topics:
            raise ValueError("name at least one topic to read")
        self.options = GroupOptions(**options)
        self.group = group
        self.topics = list(topics)
        # A connection of its own: answers come in order, and a poll may hold its back.
        self._client = Client(client.url, timeout_s=client.config.timeout_s)
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._client.close()

    def __iter__(self) -> Iterator[Batch]:
        while not self._is_closed:
            batch = self.poll()
            if batch is not None:
                yield batch

    def poll(self) -> Batch | None:
        """The next batch; None if nothing came within ``wait_s``. A broker that is away is waited for.

        Raises:
            SteleClientError: one that does not pass by itself.
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
                time.sleep(retry_pause_s(failures))
            else:
                for one in polled.skipped:
                    logger.warning(
                        "group %r: offsets %d to %d of %s-%d were deleted before they were read",
                        self.group,
                        one.offset,
                        one.next_offset - 1,
                        one.topic,
                        one.partition,
                    )
                return None if polled.lease is None else Batch(self, polled)

    def ack(self, lease: str) -> None:
        self._until_done(Ack(group=self.group, lease=lease))

    def nack(self, lease: str) -> None:
        self._client.call(Nack(group=self.group, lease=lease))

    def extend(self, lease: str) -> None:
        self._client.call(Extend(group=self.group, lease=lease, lease_ms=self.options.lease_ms))

    def _until_done(self, operation: Ack) -> None:
        """Again while the broker is away: the same ack is answered in the same way, or says that it is too late."""
        deadline_s = time.monotonic() + self.options.lease_s
        failures = 0
        while True:
            try:
                return self._client.call(operation)
            except SteleClientError as error:
                if not error.retriable or time.monotonic() > deadline_s:
                    raise
                failures += 1
            time.sleep(retry_pause_s(failures))

    def failed(self, batch: Batch, error: BaseException) -> bool:
        """What becomes of a batch that was left by ``error``; True: it goes no further."""
        is_ours = isinstance(error, Exception) and self.options.on_error == "redeliver"
        dead_letter_topic = self.options.dead_letter_topic
        if is_ours and dead_letter_topic is not None and batch.deliveries >= self.options.max_deliveries:
            logger.error(
                "group %r: %d records go to %s after %d deliveries: %s",
                self.group,
                len(batch),
                dead_letter_topic,
                batch.deliveries,
                error,
            )
            self._client.produce_many(dead_letter_topic, dead_letters(self.group, batch.records, error))
            batch.ack()
            return True
        # If that does not reach the broker, the lease runs out.
        with contextlib.suppress(SteleClientError):
            batch.nack()
        if is_ours:
            logger.warning("group %r: %d records are delivered again: %s", self.group, len(batch), error)
        return is_ours
