"""From rotations to acknowledgements: objects are stored in parallel and committed in order.

::

    rotation 4 ──▶ put ────────────┐
    rotation 5 ──▶ put ──────┐     │            one transaction for those that are ready,
    rotation 6 ──▶ put ──┐   │     │            in the order of the rotations
                         ▼   ▼     ▼
                         6   5     4 ─▶ commit ─▶ logs, cache, tickets

The order matters to idempotent producers and to callers that rely on the order of their appends: what
was appended first gets the lower offset. Small objects are stored in the metadata by their commit, so
they need no ``put``.

An append fails if its object cannot be stored, or cannot be committed in time. If it is not known
whether a commit has happened, nothing else is committed until that is settled: the same commit is
repeated, and after ``commit_timeout_ms`` the object is fenced, which says whether it was committed.

It is one file, because the order of uploads and commits follows from all of its steps together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from stele.wire.messages import Durability
from stele.wire.record_batch import NO_TIMESTAMP, BatchHeader

from ...clock import Clock
from ...errors import StorageUnavailable, UnknownTopic
from ..engine import SharedStorageCounts
from .log import SharedLog
from .meta import (
    BatchPlace,
    CommitAnswer,
    CommitUnknown,
    Meta,
    MetaUnavailable,
    ObjectFenced,
    ObjectRef,
    ObjectWrite,
    RunPlace,
    RunRead,
    StoreKind,
)
from .refused_batches import RefusedBatches
from .store.backoff import Backoff
from .store.object_keys import WRITTEN, ObjectKeys, prefix_of
from .store.object_store import ObjectStore, ObjectStoreError
from .write_buffer import PackedObject, QueuedAppend, Rotation, run_write

logger = logging.getLogger(__name__)

# Objects that one transaction commits; more would hold the locks of their logs for longer.
_OBJECTS_PER_COMMIT = 8
# An object is never committed later than this after it was begun: others may have given it up and deleted it.
COMMIT_AGE_MAX_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """``uploads_max`` objects are stored at the same time.

    Retries wait ``retry_ms``, then up to 16 times that.

    An object up to ``inline_bytes_max`` is stored in the metadata; without an object store each is.
    ``upload_timeout_ms`` bounds all tries to store an object, and ``commit_timeout_ms`` those to commit it. After
    ``stalled_ms`` without success a broker is not ready for new clients.
    """

    uploads_max: int = 4
    inline_bytes_max: int = 0
    retry_ms: int = 50
    upload_timeout_ms: int = 30_000
    commit_timeout_ms: int = 30_000
    stalled_ms: int = 10_000


@dataclass(slots=True, eq=False, repr=False)
class Pending:
    """A rotation on its way, with its object.

    ``uploaded`` ends with the error that keeps its object from being stored.
    """

    rotation: Rotation
    packed: PackedObject
    key: str
    begun_ms: int
    uploaded: asyncio.Task[StorageUnavailable | None] | None = None
    is_inline: bool = False
    is_released: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Committer:
    """Stores and commits the rotations of one broker.

    ``on_ended`` is called when a rotation has ended, before its tickets are done; ``on_committed`` with
    each log that has new records, and their bytes (1 if they are not known); ``keep`` with a committed object. ``counts`` is kept up to date.
    """

    def __init__(
        self,
        *,
        meta: Meta,
        stores: Mapping[StoreKind, ObjectStore],
        keys: ObjectKeys,
        uploader: UUID,
        clock: Clock,
        options: CommitOptions,
        on_ended: Callable[[Rotation], None],
        on_committed: Callable[[SharedLog, int], None],
        keep: Callable[[ObjectRef, bytes], None],
        counts: SharedStorageCounts,
    ) -> None:
        self._meta = meta
        self._store = stores.get(StoreKind.OBJECTS)
        self._keys = keys
        self._uploader = uploader
        self._clock = clock
        self._options = options
        self._on_ended = on_ended
        self._on_committed = on_committed
        self._keep = keep
        self._counts = counts
        self._uploads = asyncio.Semaphore(options.uploads_max)
        self._pending: deque[Pending] = deque()
        self._has_pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._refused = RefusedBatches(meta, clock)
        # When the last of each succeeded, and since when uploads fail; None if they do not.
        self.committed_ms = self.uploaded_ms = clock.monotonic_ms()
        self._failing_since_ms: int | None = None
        # Keys of objects that were perhaps stored and will not be committed.
        self.abandoned: list[str] = []

    def start(self) -> None:
        """Begin to commit what is submitted."""
        assert self._task is None
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; the tickets of what has not ended fail. ``drain`` first to avoid that."""
        tasks = [pending.uploaded for pending in self._pending if pending.uploaded is not None]
        if self._task is not None:
            tasks_all: list[asyncio.Task[None] | asyncio.Task[StorageUnavailable | None]] = [
                self._task,
                *tasks,
            ]
            for task in tasks_all:
                task.cancel()
            await asyncio.gather(*tasks_all, return_exceptions=True)
            self._task = None
        for pending in list(self._pending):
            self._fail(pending, _unavailable("the broker is closing"))
        self._pending.clear()

    @property
    def in_flight(self) -> int:
        """Return how many rotations have not ended."""
        return len(self._pending)

    def submit(self, rotation: Rotation) -> None:
        """Store and commit a rotation, after those that were submitted before."""
        packed = rotation.pack()
        pending = Pending(
            rotation=rotation,
            packed=packed,
            key=self._keys.next(len(packed.data)),
            begun_ms=self._clock.monotonic_ms(),
            is_inline=self._store is None or len(packed.data) <= self._options.inline_bytes_max,
        )
        if not pending.is_inline:
            pending.uploaded = asyncio.create_task(self._upload(pending))
        self._pending.append(pending)
        self._has_pending.set()

    async def drain(self) -> None:
        """Wait until everything submitted has succeeded or failed."""
        if self._pending:
            await self._pending[-1].ended.wait()

    def history_changed(self) -> None:
        """Note that the metadata may have forgotten producers."""
        self._refused.forget_settled()

    def refused(self, log: SharedLog, header: BatchHeader) -> None:
        """Note a batch that was not stored for now: its producer sends it again, before later ones."""
        self._refused.note(log, header)

    # ── upload ──

    async def _upload(self, pending: Pending) -> StorageUnavailable | None:
        """Store an object; return the error if that fails for too long."""
        store = self._store
        assert store is not None
        deadline_ms = self._clock.monotonic_ms() + self._options.upload_timeout_ms
        backoff = Backoff(self._options.retry_ms)
        async with self._uploads:
            while True:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                try:
                    async with asyncio.timeout(max(left_ms, 1) / 1000):
                        await store.put(pending.key, pending.packed.data)
                except (ObjectStoreError, TimeoutError) as error:
                    if self._failing_since_ms is None:
                        self._failing_since_ms = self._clock.monotonic_ms()
                    if self._clock.monotonic_ms() + backoff.next_ms >= deadline_ms:
                        logger.warning("object %s was not stored: %s", pending.key, error)
                        self._counts.failed_uploads += 1
                        return _unavailable(f"the object store does not take objects: {error}")
                else:
                    self.uploaded_ms, self._failing_since_ms = self._clock.monotonic_ms(), None
                    return None
                await backoff.wait()

    # ── health ──

    @property
    def has_store(self) -> bool:
        """Return whether objects go to an object store."""
        return self._store is not None

    @property
    def stall(self) -> str | None:
        """Return what has not succeeded for ``stalled_ms``; None if all goes well."""
        now_ms, limit_ms = self._clock.monotonic_ms(), self._options.stalled_ms
        since_ms = self._failing_since_ms
        if since_ms is not None and now_ms - since_ms >= limit_ms:
            return f"the object store has taken no object for {(now_ms - since_ms) // 1000} seconds"
        waited_ms = now_ms - self._pending[0].begun_ms if self._pending else 0
        if waited_ms >= limit_ms:
            return f"an append has waited for its commit for {waited_ms // 1000} seconds"
        return None

    async def probe(self) -> None:
        """Ask the store whether it is back, if uploads fail and no producer finds out.

        Raises ``ObjectStoreError``.
        """
        if self._store is not None and self._failing_since_ms is not None and not self._pending:
            await self._store.list_page(prefix_of(WRITTEN, self._uploader))
            self._failing_since_ms = None

    # ── commit ──

    async def _run(self) -> None:
        while True:
            self._has_pending.clear()
            if not self._pending:
                await self._has_pending.wait()
            ready = await self.ready()
            try:
                await self._commit(ready)
            except Exception as error:  # the edge of a task: later rotations must go on
                logger.exception("%d objects were not committed", len(ready))
                for pending in ready:
                    self.abandoned.append(pending.key)
                    self._fail(pending, _unavailable(f"unexpected error: {type(error).__name__}"))
            for pending in ready:
                self._pending.remove(pending)
                pending.ended.set()

    async def ready(self) -> list[Pending]:
        """Wait for the oldest object; return it and those after it that are stored, too."""
        ready: list[Pending] = []
        for pending in list(self._pending)[:_OBJECTS_PER_COMMIT]:
            uploaded = pending.uploaded
            if uploaded is not None and not uploaded.done():
                if ready:
                    break
                await asyncio.wait((uploaded,))
            ready.append(pending)
        return ready

    async def _commit(self, ready: Sequence[Pending]) -> None:
        stored: list[Pending] = []
        for pending in ready:
            error = None if pending.uploaded is None else pending.uploaded.result()
            if error is None:
                stored.append(pending)
            else:
                self.abandoned.append(pending.key)
                self._fail(pending, error)
        for pending in stored:
            await self._refuse_successors(pending.rotation)
        chosen = [pending for pending in stored if pending.rotation.by_log]
        # All appends of the others were refused.
        self.abandoned += [
            pending.key for pending in stored if pending not in chosen and not pending.is_inline
        ]
        if not chosen:
            for pending in stored:
                self._release(pending)
            return
        answer = await self._commit_objects(chosen)
        if answer is None:
            for pending in stored:
                self._release(pending)
            return
        for pending in stored:
            self._release(pending)
        for pending, places in zip(chosen, answer, strict=True):
            self._committed(pending, places)

    async def _refuse_successors(self, rotation: Rotation) -> None:
        """Take out of a rotation what follows a batch of the same producer that failed.

        Only for producers that the log does not know: it accepts any first batch of them.
        """
        if not self._refused:
            return
        for log in list(rotation.by_log):
            kept: list[QueuedAppend] = []
            for append in rotation.by_log[log]:
                is_copy = append.copies is not None
                refused = None if is_copy else await self._refused.error(log, append.headers[0])
                if refused is None:
                    kept.append(append)
                elif not append.future.done():
                    append.future.set_exception(refused)
            if kept:
                rotation.by_log[log] = kept
            else:
                del rotation.by_log[log]

    async def _commit_objects(self, chosen: Sequence[Pending]) -> CommitAnswer | None:
        """Commit objects and return what became of them; None if they failed, then so have their tickets."""
        computed = None
        begun_ms = self._clock.monotonic_ms()
        backoff = Backoff(self._options.retry_ms)
        while True:
            now_ms = self._clock.monotonic_ms()
            is_late = now_ms - begun_ms > self._options.commit_timeout_ms or any(
                now_ms - pending.begun_ms > COMMIT_AGE_MAX_MS for pending in chosen
            )
            if is_late:
                return await self._give_up(chosen, computed)
            try:
                return await self.commit_once(chosen, computed)
            except CommitUnknown as error:
                computed = error.answer
            except ObjectFenced as error:
                computed = None
                logger.warning("%s; writing the objects again", error)
                if not await self._write_again(chosen, set(error.keys)):
                    return None
                continue
            except MetaUnavailable as error:
                logger.warning("a commit of %d objects is tried again: %s", len(chosen), error)
            self._counts.commit_retries += 1
            await backoff.wait()

    async def commit_once(self, chosen: Sequence[Pending], computed: CommitAnswer | None) -> CommitAnswer:
        """Try to commit objects; raises what ``Meta.commit_objects`` raises."""
        return await self._meta.commit_objects(
            [self._object_write(pending) for pending in chosen], computed=computed
        )

    def _object_write(self, pending: Pending) -> ObjectWrite:
        return ObjectWrite(
            key=pending.key,
            uploader=self._uploader,
            size=len(pending.packed.data),
            runs=[
                run_write(log, run)
                for log, appends in pending.rotation.by_log.items()
                for run in _contiguous(appends)
            ],
            inline=pending.packed.data if pending.is_inline else None,
        )

    async def _write_again(self, chosen: Sequence[Pending], fenced: set[str]) -> bool:
        """Store fenced objects under new keys; return whether that succeeded for all of them."""
        failed: StorageUnavailable | None = None
        for pending in chosen:
            if pending.key in fenced:
                if not pending.is_inline:
                    # Its bytes may have been stored once more after the other broker had deleted them.
                    self.abandoned.append(pending.key)
                pending.key = self._keys.next(len(pending.packed.data))
                pending.begun_ms = self._clock.monotonic_ms()
                if not pending.is_inline:
                    failed = await self._upload(pending) or failed
        if failed is None:
            return True
        for pending in chosen:
            self.abandoned.append(pending.key)
            self._fail(pending, failed)
        return False

    async def _give_up(self, chosen: Sequence[Pending], computed: CommitAnswer | None) -> CommitAnswer | None:
        """Fail the tickets, and settle the fate of the objects before anything else.

        Their producers may send the batches again: if they were committed, idempotent ones are recognized.
        """
        error = _unavailable("the metadata does not take commits; the records may be stored")
        for pending in chosen:
            self._fail_tickets(pending, error)
        keys = [pending.key for pending in chosen]
        backoff = Backoff(self._options.retry_ms)
        while True:
            try:
                fenced = await self._meta.fence(self._uploader, keys)
            except MetaUnavailable:
                await backoff.wait()
            else:
                break
        return computed if len(fenced) < len(keys) else None

    # ── the end of a rotation ──

    def _committed(self, pending: Pending, places: Sequence[RunPlace]) -> None:
        """Let readers see what is committed, then end the tickets."""
        self.committed_ms = self._clock.monotonic_ms()
        kind = StoreKind.INLINE if pending.is_inline else StoreKind.OBJECTS
        if pending.is_inline:
            self._counts.inline_objects += 1
            self._counts.inline_bytes += len(pending.packed.data)
        else:
            self._counts.objects += 1
            self._counts.object_bytes += len(pending.packed.data)
        ref = ObjectRef(pending.key, kind)
        self._keep(ref, pending.packed.data)
        ended: list[tuple[QueuedAppend, Sequence[BatchPlace], Durability]] = []
        is_stored_well = pending.is_inline or (self._store is not None and self._store.is_durable)
        runs = iter(places)
        for log, appends in pending.rotation.by_log.items():
            size = 0
            for contiguous in _contiguous(appends):
                place = next(runs)
                if place.log is None:
                    ended += ((append, (), Durability.NONE) for append in contiguous)
                    continue
                if place.log.history == log.history:
                    # The answer to a commit may be late, and of a history that is over.
                    size += _note_runs(log, ref, contiguous, place, pending.begun_ms)
                log.update(place.log)
                batches = iter(place.places)
                durability = place.log.durability
                if not is_stored_well:
                    durability = min(durability, Durability.SYNCED)
                for append in contiguous:
                    ended.append((append, [next(batches) for _ in append.headers], durability))
            # Without bytes, the answer to refused batches and repeats tells what other brokers have appended.
            if log.has_news:
                self._on_committed(log, max(size, 1))
        for append, batch_places, durability in ended:
            self._end(append, batch_places, durability)

    def _end(self, append: QueuedAppend, places: Sequence[BatchPlace], durability: Durability) -> None:
        future = append.future
        if future.done():
            return
        error = next((place.error for place in places if place.error is not None), None)
        if not places:
            # The topic was deleted.
            error = UnknownTopic(append.log.topic_partition.topic)
        is_copy = append.copies is not None
        if error is not None:
            future.set_exception(
                error if is_copy else self._refused.verdict(append.log, append.headers[0], error)
            )
            return
        last = append.headers[-1]
        if not is_copy:
            self._refused.accepted(append.log, last)
        append.ticket.place(
            base_offset=places[0].base_offset,
            last_offset=places[-1].base_offset + last.last_offset_delta,
            log_append_time_ms=append.log_append_time_ms,
            log_start_offset=append.log.log_start_offset,
            durability=durability,
            is_repeat=places[0].is_duplicate,
        )
        future.set_result(None)

    def _release(self, pending: Pending) -> None:
        if not pending.is_released:
            pending.is_released = True
            self._on_ended(pending.rotation)

    def _fail(self, pending: Pending, error: StorageUnavailable) -> None:
        self._release(pending)
        self._fail_tickets(pending, error)

    def _fail_tickets(self, pending: Pending, error: StorageUnavailable) -> None:
        for log, appends in pending.rotation.by_log.items():
            for append in appends:
                if not append.future.done():
                    if append.copies is None:
                        self.refused(log, append.headers[0])
                    append.future.set_exception(error)


def _unavailable(reason: str) -> StorageUnavailable:
    return StorageUnavailable("the append", reason)


def _contiguous(appends: Sequence[QueuedAppend]) -> list[list[QueuedAppend]]:
    """Split the appends of a log where one was taken out between two others."""
    runs: list[list[QueuedAppend]] = []
    for append in appends:
        if runs and runs[-1][-1].position + runs[-1][-1].size == append.position:
            runs[-1].append(append)
        else:
            runs.append([append])
    return runs


def _note_runs(
    log: SharedLog, ref: ObjectRef, appends: Sequence[QueuedAppend], place: RunPlace, now_ms: int
) -> int:
    """Note the committed runs of a log, which refused batches and repeats split; return their bytes."""
    size = 0
    run: RunRead | None = None
    position = appends[0].position
    headers = ((append.copies is not None, header) for append in appends for header in append.headers)
    for (is_copy, header), batch in zip(headers, place.places, strict=True):
        if batch.error is None and not batch.is_duplicate:
            size += header.size
            first_offset = batch.base_offset - batch.hole
            last_offset = batch.base_offset + header.last_offset_delta
            cleaned_until = last_offset + 1 if is_copy else 0
            if run is not None and run.last_offset + 1 == first_offset and bool(run.cleaned_until) == is_copy:
                run = run._replace(
                    last_offset=last_offset,
                    length=run.length + header.size,
                    max_timestamp=max(run.max_timestamp, header.max_timestamp),
                    cleaned_until=cleaned_until,
                )
            else:
                if run is not None:
                    log.note_run(run, now_ms)
                run = RunRead(
                    base_offset=first_offset,
                    last_offset=last_offset,
                    object=ref,
                    position=position,
                    length=header.size,
                    max_timestamp=max(NO_TIMESTAMP, header.max_timestamp),
                    is_merged=False,
                    cleaned_until=cleaned_until,
                )
        elif run is not None:
            log.note_run(run, now_ms)
            run = None
        position += header.size
    if run is not None:
        log.note_run(run, now_ms)
    return size
