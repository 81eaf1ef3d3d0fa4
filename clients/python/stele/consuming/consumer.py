"""The blocking consumer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack, cast, overload

from ..client import Client
from ..errors import ClosedError, SteleClientError
from ..records import Record
from ..serializers import Deserializer, bytes_deserializer
from .core import ConsumerCore, ConsumerOptions, ConsumerSettings

V = TypeVar("V")

# Over HTTP a fetch waits for one partition: not so long that the others starve.
SHARED_WAIT_MS = 100


class Consumer(Generic[V]):
    """``AsyncConsumer`` for a thread: same promises, same settings.

    ::

        for record in consumer: ...

    It fetches when its buffer is empty. For one thread at a time.
    """

    @overload
    def __init__(
        self: Consumer[bytes],
        client: Client,
        topic: str,
        *,
        deserializer: None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        deserializer: Deserializer[V],
        **settings: Unpack[ConsumerSettings],
    ) -> None: ...
    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        deserializer: Deserializer[V] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """See ``ConsumerOptions`` for the settings. Raises ValueError for one that makes no sense."""
        self._client = client
        self._core = ConsumerCore(
            topic,
            deserializer or cast("Deserializer[V]", bytes_deserializer),
            ConsumerOptions(**settings),
            fetches_many=client.transport.fetches_many,
        )
        self._is_started = False
        self._is_closed = False
        self._turn = 0

    @property
    def topic(self) -> str:
        return self._core.topic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── records ──

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record[V]:
        """Raises SteleClientErrors; after any of them iterating on is safe and loses nothing."""
        while not self._core.has_records:
            if not self._fill(None):
                raise StopIteration
        return self._core.next_record()

    def poll(self, *, max_records: int = 500, timeout_s: float = 1.0) -> list[Record[V]]:
        """Up to ``max_records``, as soon as there is one; an empty list after about ``timeout_s``."""
        deadline_s = time.monotonic() + timeout_s
        while not self._core.has_records:
            if not self._fill(deadline_s) or time.monotonic() >= deadline_s:
                break
        return self._core.next_records(max_records)

    def batches(self, *, max_records: int = 10_000) -> Iterator[list[Record[V]]]:
        """What was fetched, as lists: less overhead for each record than iterating over them."""
        while True:
            if self._core.has_records:
                yield self._core.next_records(max_records)
            elif not self._fill(None):
                return

    # ── positions ──

    def start(self) -> None:
        """Find partitions and positions now, rather than with the first record.

        Raises:
            UnknownTopicError: the topic must exist.
        """
        if self._is_started:
            return
        options, core = self._core.options, self._core
        partitions = options.partitions
        if partitions is None:
            partitions = range(self._client.partition_count(core.topic))
        elif isinstance(partitions, int):
            partitions = (partitions,)
        found: list[tuple[int, int, int | None]] = []
        for partition in partitions:
            # The end first: what is written meanwhile must not lie before the start.
            end = None if options.follow else self._client.list_offset(core.topic, partition, "latest")
            start = options.start_of(partition)
            if not isinstance(start, int):
                offset = self._client.list_offset(core.topic, partition, start)
                start = self._latest(partition) if offset is None else offset
            found.append((partition, start, end))
        for partition, start, end in found:
            core.assign(partition, start, end)
        self._is_started = True

    def _latest(self, partition: int) -> int:
        offset = self._client.list_offset(self._core.topic, partition, "latest")
        assert offset is not None
        return offset

    def position(self, partition: int) -> int:
        """The offset of the next record the application gets. Raises KeyError before ``start``."""
        return self._core.position(partition)

    def lag(self, partition: int) -> int | None:
        """How many offsets the position was behind the log's end at the last fetch; None before it."""
        return self._core.lag(partition)

    @property
    def partitions(self) -> list[int]:
        return self._core.partitions

    def seek(self, partition: int, offset: int) -> None:
        """Go on at ``offset``."""
        self.start()
        self._core.seek(partition, offset)

    # ── fetching ──

    def _fill(self, deadline_s: float | None) -> bool:
        """Fetch once; False when the end that was asked for is reached."""
        if self._is_closed:
            raise ClosedError("consumer")
        try:
            self._fetch_once(deadline_s)
        except SteleClientError as error:
            now_s = time.monotonic()
            pause_s = self._core.pause_s_after(error, now_s)
            time.sleep(pause_s if deadline_s is None else max(min(pause_s, deadline_s - now_s), 0))
        return self._core.has_records or not self._core.is_finished

    def _fetch_once(self, deadline_s: float | None) -> None:
        self.start()
        if not self._core.has_records and (error := self._core.take_error()) is not None:
            raise error
        groups = self._core.groups()
        if not groups:
            return
        # Ask all without waiting; only when none has anything, wait for one of them in turn.
        if len(groups) > 1:
            for group in groups:
                self._fetch(group, 0)
            if self._core.has_records or not self._core.options.follow:
                return
        wait_ms = self._core.options.wait_ms if self._core.options.follow else 0
        if len(groups) > 1:
            wait_ms = min(wait_ms, SHARED_WAIT_MS)
        if deadline_s is not None:
            wait_ms = min(wait_ms, max(int((deadline_s - time.monotonic()) * 1000), 0))
        self._turn = (self._turn + 1) % len(groups)
        self._fetch(groups[self._turn], wait_ms)

    def _fetch(self, group: tuple[int, ...], wait_ms: int) -> None:
        fetch = self._core.fetch(group, wait_ms=wait_ms)
        outcomes = self._client.call(fetch)
        to_reset = self._core.accept(fetch, outcomes)
        for partition in to_reset:
            policy = self._core.options.on_out_of_range
            assert policy != "error"
            offset = self._client.list_offset(self._core.topic, partition, policy)
            assert offset is not None
            self._core.seek(partition, offset)

    def close(self) -> None:
        """Stop; the client stays open."""
        self._is_closed = True
