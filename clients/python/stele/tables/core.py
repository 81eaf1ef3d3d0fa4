"""Records, positions and changes of a table, without I/O.

A partition is loaded page by page (``TableFetch``) and then followed (``Fetch``). It is
loaded again if the broker no longer has its position.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar, cast

from ..errors import (
    ClosedError,
    DeserializationError,
    OffsetOutOfRangeError,
    SteleClientError,
    UnsupportedOperationError,
)
from ..operations.fetch import FETCH_BYTES_MAX, PARTITION_BYTES_MAX, Fetch, FetchOutcome
from ..operations.tables import TableFetch, TablePage
from ..records import FetchedRecords, Record, RecordMetadata
from ..serializers import Deserializer, headed
from ..transport.base import retry_pause_s
from ..wire import messages as m

K = TypeVar("K")
V = TypeVar("V")

# Where a reader is to arrive: past these records, or at these positions by partition.
Target = RecordMetadata | Sequence[RecordMetadata] | Mapping[int, int]

# Compaction keeps tombstones for ``delete.retention.ms``; a shorter one is taken for this, because an idle
# partition is heard of only once per ``wait_ms``.
TOMBSTONES_LEAST_S = 60.0

# Keys with changes that an iterator has not taken yet.
PENDING_CHANGES_MAX = 100_000


class TableSettings(TypedDict, total=False):
    """Keyword arguments of a table; see ``TableOptions``."""

    partitions: int | Sequence[int] | None
    follow: bool
    wait_ms: int
    max_bytes: int
    outage_timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Validated settings of a table.

    - ``partitions``: one, several, or None for all that the topic has at the start.
    - ``follow``: False takes changes only in ``refresh`` and ``wait_until``.
    - ``wait_ms``: the longest wait of a fetch for changes.
    - ``max_bytes``: the most bytes per partition and fetch.
    - ``outage_timeout_s``: how long ``start``, ``refresh`` and ``wait_until`` retry while the broker is down before
      they raise the error; None retries without end. Following always retries.

    Raises:
        ValueError: a setting has an invalid value.
    """

    partitions: int | Sequence[int] | None = None
    follow: bool = True
    wait_ms: int = 5000
    max_bytes: int = PARTITION_BYTES_MAX
    outage_timeout_s: float | None = 60.0

    def __post_init__(self) -> None:
        if self.wait_ms < 0 or not 0 < self.max_bytes <= FETCH_BYTES_MAX:
            raise ValueError(f"wait_ms must not be negative, max_bytes from 1 to {FETCH_BYTES_MAX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[K, V]):
    """A key has a new value; ``value`` None: it was deleted.

    ``record`` is None if the key went without a tombstone: retention deleted its record.
    """

    key: K
    value: V | None
    record: Record[V] | None


class PendingChanges(Generic[K, V]):
    """Changes that one iterator has not taken: the newest per key, in the order of their last change."""

    def __init__(self) -> None:
        self._by_key: dict[K, Change[K, V] | DeserializationError] = {}
        self.is_overrun: bool = False

    def put(self, key: K, change: Change[K, V] | DeserializationError) -> None:
        self._by_key.pop(key, None)
        if len(self._by_key) >= PENDING_CHANGES_MAX:
            self.is_overrun = True
            self._by_key.clear()
        if not self.is_overrun:
            self._by_key[key] = change

    def take(self) -> Change[K, V] | None:
        """Return the next change; None if there is none.

        Raises:
            DeserializationError: the value of the next change cannot be deserialized.
            SteleClientError: the iterator fell behind, and changes were dropped.
        """
        if self.is_overrun:
            raise SteleClientError(
                f"more than {PENDING_CHANGES_MAX} keys changed before their changes were taken; read the table, "
                "and call changes() again"
            )
        if not self._by_key:
            return None
        change = self._by_key.pop(next(iter(self._by_key)))
        if isinstance(change, DeserializationError):
            raise change
        return change


@dataclass(slots=True)
class _Loading:
    """A load under way; ``kept``: the keys found so far, None if nothing was there before."""

    offset: int = 0
    end_offset: int = m.CURRENT_END
    kept: set[Any] | None = None


@dataclass(slots=True)
class _Partition:
    position: int = 0
    log_start: int = 0
    # When the position was last seen to be the end of the log.
    current_s: float = 0.0
    loading: _Loading | None = None


class TableCore(Mapping[K, V]):
    """The records of a table by key; the subclasses do the I/O.

    Reading needs no lock: each read is one operation of a dict. Changes are made by one thread at a time.
    """

    def __init__(
        self,
        topic: str,
        *,
        key: Deserializer[K],
        value: Deserializer[V],
        options: TableOptions,
        fetches_many: bool,
    ) -> None:
        self.topic = topic
        self.options = options
        self._key = headed(key)
        self._value = headed(value)
        self._fetches_many = fetches_many
        self._records: dict[K, Record[V] | DeserializationError] = {}
        self._partitions: dict[int, _Partition] = {}
        # None before the start, and with a broker that is older than fetches by id.
        self.topic_id: str | None = None
        self._pending: list[PendingChanges[K, V]] = []
        self._failure: SteleClientError | None = None
        self._is_loaded = False
        self._is_closed = False
        self._tombstones_s = TOMBSTONES_LEAST_S
        self._failures = 0
        self._outage_since_s: float | None = None

    def _reload(self) -> None:
        """Let ``start`` load all partitions again, and keep what is there until then."""
        self._is_loaded = False
        for state in self._partitions.values():
            state.loading = _Loading(kept=set())

    # ── the mapping ──

    def __getitem__(self, key: K) -> V:
        """Return the value of ``key``.

        Raises:
            KeyError: the key is not in the table.
            DeserializationError: the deserializer rejected the value.
            SteleClientError: the table can no longer follow its topic.
        """
        record = self.record(key)
        if record is None:
            raise KeyError(key)
        return cast("V", record.value)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys of now."""
        self._check()
        return iter(list(self._records))

    def __len__(self) -> int:
        self._check()
        return len(self._records)

    def __contains__(self, key: object) -> bool:
        self._check()
        return key in self._records

    def items(self) -> ItemsView[K, V]:
        """Return the items of now; changes that follow do not show."""
        return self.snapshot().items()

    def values(self) -> ValuesView[V]:
        """Return the values of now; changes that follow do not show."""
        return self.snapshot().values()

    def snapshot(self) -> dict[K, V]:
        """Return a copy of the table. Raises as ``[]``."""
        self._check()
        return {key: cast("V", _readable(held).value) for key, held in list(self._records.items())}

    def records(self) -> list[Record[V]]:
        """Return the records of now, in no order. Raises as ``[]``."""
        self._check()
        return [_readable(held) for held in list(self._records.values())]

    def record(self, key: K) -> Record[V] | None:
        """Return the record of ``key`` with its offset, timestamp and headers; None if there is none.

        Raises:
            DeserializationError: the deserializer rejected the value.
            SteleClientError: the table can no longer follow its topic.
        """
        self._check()
        held = self._records.get(key)
        return None if held is None else _readable(held)

    @property
    def positions(self) -> dict[int, int]:
        """The next offset per partition: the table has all changes before it."""
        return {partition: state.position for partition, state in self._partitions.items()}

    def _load_first(self) -> None:
        """Load the table when it is read for the first time, if reading can wait."""

    def _check(self) -> None:
        if not self._is_loaded and not self._is_closed:
            self._load_first()
        if self._is_closed:
            raise ClosedError("table")
        if self._failure is not None:
            raise self._failure.twin()
        if not self._is_loaded:
            raise RuntimeError("the table is not loaded; enter its block, or call start() first")

    # ── partitions ──

    def assign(self, partitions: Iterable[int], *, delete_retention_ms: int = 0) -> None:
        """Begin to load ``partitions`` of a topic.

        It keeps tombstones for ``delete_retention_ms``.
        """
        self._tombstones_s = max(delete_retention_ms / 1000, TOMBSTONES_LEAST_S)
        self._records.clear()
        self._partitions = {partition: _Partition(loading=_Loading()) for partition in partitions}

    def groups(self) -> list[tuple[int, ...]]:
        """Return the partitions, grouped by those that one fetch can read."""
        if self._fetches_many:
            return [tuple(self._partitions)]
        return [(partition,) for partition in self._partitions]

    def is_loaded(self, group: Iterable[int]) -> bool:
        return all(self._partitions[partition].loading is None for partition in group)

    def is_at(self, target: Mapping[int, int]) -> bool:
        """Return whether the partitions are loaded and have reached ``target``."""
        return all(
            self._partitions[partition].loading is None and self._partitions[partition].position >= offset
            for partition, offset in target.items()
        )

    def target_of(self, target: Target) -> dict[int, int]:
        """Return the positions by partition that stand for ``target``.

        Raises:
            ValueError: a receipt has no offset, or is of another topic or partition.
        """
        positions: dict[int, int] = {}
        if isinstance(target, Mapping):
            positions |= target
        else:
            for receipt in (target,) if isinstance(target, RecordMetadata) else target:
                if receipt.topic != self.topic:
                    raise ValueError(
                        f"the receipt is of topic {receipt.topic!r}, the table of {self.topic!r}"
                    )
                if receipt.offset < 0:
                    raise ValueError("the receipt has no offset; produce with acks 'all' or 1")
                positions[receipt.partition] = max(positions.get(receipt.partition, 0), receipt.offset + 1)
        unknown = sorted(positions.keys() - self._partitions.keys())
        if unknown:
            raise ValueError(
                f"partition {unknown[0]} is not in the table, which has {sorted(self._partitions)}; "
                "open a new table for partitions that were added"
            )
        return positions

    # ── requests and their results ──

    def next_operation(self, group: Sequence[int], *, wait_ms: int) -> TableFetch | Fetch:
        """Return the next page of a partition to load; otherwise a fetch of all."""
        for partition in group:
            loading = self._partitions[partition].loading
            if loading is not None:
                return TableFetch(
                    topic=self.topic,
                    partition=partition,
                    offset=loading.offset,
                    end_offset=loading.end_offset,
                )
        return Fetch(
            partitions=[
                m.FetchPartition(
                    topic=self.topic,
                    partition=partition,
                    offset=self._partitions[partition].position,
                    max_bytes=self.options.max_bytes,
                )
                for partition in group
            ],
            wait_ms=wait_ms,
            topic_id=self.topic_id,
        )

    def accept_page(self, fetch: TableFetch, page: TablePage, now_s: float) -> None:
        """Apply a page of a partition that is loaded; ``now_s`` is any clock's.

        Raises:
            DeserializationError: a key cannot be deserialized.
        """
        state = self._partitions[fetch.partition]
        loading = state.loading
        if loading is None or loading.offset != fetch.offset:
            return
        self._failures, self._outage_since_s = 0, None
        for record in page.records:
            key = self._apply(record)
            if key is not None and loading.kept is not None:
                loading.kept.add(key[0])
        loading.offset, loading.end_offset = page.next_offset, page.end_offset
        if page.is_last:
            if loading.kept is not None:
                self._remove(fetch.partition, lambda key, _, kept=loading.kept: key not in kept)
            state.position, state.loading, state.current_s = page.next_offset, None, now_s
            self._is_loaded = self._is_loaded or self.is_loaded(self._partitions)

    def accept_fetch(self, fetch: Fetch, outcomes: Sequence[FetchOutcome], now_s: float) -> None:
        """Apply changes; a partition that may have missed tombstones is loaded again.

        Raises:
            SteleClientError: an error of a partition; the others were applied.
        """
        failed: SteleClientError | None = None
        for requested, outcome in zip(fetch.partitions, outcomes, strict=True):
            state = self._partitions[requested.partition]
            if state.loading is not None or state.position != requested.offset:
                # Another caller was faster.
                continue
            if isinstance(outcome, FetchedRecords):
                if outcome.next_offset > requested.offset and now_s - state.current_s > self._tombstones_s:
                    state.loading = _Loading(kept=set())
                    continue
                for record in outcome.records:
                    self._apply(record)
                state.position = outcome.next_offset
                if state.position >= outcome.high_watermark:
                    state.current_s = now_s
                self._expire(requested.partition, state, outcome.log_start_offset)
            elif isinstance(outcome, OffsetOutOfRangeError):
                state.loading = _Loading(kept=set())
            else:
                failed = outcome
        if failed is not None:
            raise failed
        self._failures, self._outage_since_s = 0, None

    def pause_s_after(
        self, operation: TableFetch | Fetch, error: SteleClientError, now_s: float | None
    ) -> float:
        """Return how long to pause after a failed request; ``now_s`` None retries without end.

        Raises:
            SteleClientError: ``error``, if it is not retriable or the outage has lasted
                for ``outage_timeout_s``.
        """
        if isinstance(operation, TableFetch) and isinstance(error, OffsetOutOfRangeError):
            # The broker lost the end of its log: its table is an earlier one.
            self._partitions[operation.partition].loading = _Loading(kept=set())
        elif isinstance(error, UnsupportedOperationError) and self.topic_id is not None:
            # Without the id, it follows any topic of this name.
            self.topic_id = None
            return 0.0
        elif not error.retriable:
            raise error
        limit_s = self.options.outage_timeout_s
        if now_s is not None and limit_s is not None:
            if self._outage_since_s is None:
                self._outage_since_s = now_s
            if now_s - self._outage_since_s >= limit_s:
                self._outage_since_s = None
                raise error
        self._failures += 1
        return retry_pause_s(self._failures)

    def fail(self, error: SteleClientError) -> None:
        """Raise ``error`` from now on, because the table cannot follow its topic."""
        self._failure = self._failure or error

    # ── changes ──

    def _apply(self, record: Record[bytes]) -> tuple[K] | None:
        """Apply a record; return its key, in a tuple, if the key has its value now.

        Several partitions may have records of one key: then the newest timestamp counts.
        """
        if record.key is None:
            # Of the time before the topic was compacted.
            return None
        try:
            key = self._key(record.key, record.headers)
        except Exception as error:  # a deserializer is the user's and may raise anything
            raise _rejected("key", record, error) from error
        held = self._records.get(key)
        if held is not None:
            source = held.record if isinstance(held, DeserializationError) else held
            if source.partition != record.partition and (source.timestamp, source.partition) > (
                record.timestamp,
                record.partition,
            ):
                return None
        if record.value is None:
            if held is not None:
                del self._records[key]
                self._notify(key, Change(key=key, value=None, record=cast("Record[V]", record)))
            return None
        try:
            value = self._value(record.value, record.headers)
        except Exception as error:  # noqa: BLE001 - a deserializer is the user's; reading the key raises it
            rejected = self._records[key] = _rejected("value", record, error)
            self._notify(key, rejected)
            return (key,)
        stored = Record(
            record.topic, record.partition, record.offset, record.timestamp, record.key, value, record.headers
        )
        self._records[key] = stored
        # A partition that is loaded again has records that the table has already.
        if stored != held:
            self._notify(key, Change(key=key, value=value, record=stored))
        return (key,)

    def _expire(self, partition: int, state: _Partition, log_start: int) -> None:
        """Remove what retention deleted from the start of the log."""
        if log_start > state.log_start:
            state.log_start = log_start
            self._remove(partition, lambda _, offset: offset < log_start)

    def _remove(self, partition: int, is_removed: Callable[[K, int], bool]) -> None:
        gone: list[K] = []
        for key, held in self._records.items():
            source = held.record if isinstance(held, DeserializationError) else held
            if source.partition == partition and is_removed(key, source.offset):
                gone.append(key)
        for key in gone:
            del self._records[key]
            self._notify(key, Change(key=key, value=None, record=None))

    def _notify(self, key: K, change: Change[K, V] | DeserializationError) -> None:
        for pending in self._pending:
            pending.put(key, change)

    def subscribe(self) -> PendingChanges[K, V]:
        pending: PendingChanges[K, V] = PendingChanges()
        self._pending.append(pending)
        return pending

    def unsubscribe(self, pending: PendingChanges[K, V]) -> None:
        self._pending = [other for other in self._pending if other is not pending]


def _readable(held: Record[V] | DeserializationError) -> Record[V]:
    if isinstance(held, DeserializationError):
        raise held.twin()
    return held


def _rejected(what: str, record: Record[bytes], error: Exception) -> DeserializationError:
    return DeserializationError(
        f"the {what} of {record.topic}-{record.partition} offset {record.offset} cannot be deserialized: {error}",
        record,
    )
