"""Makes a data directory from a replica.

::

    bucket ──▶ stores ──▶ checked and prepared ──▶ topics of the cut ──▶ segments ──▶ small files ──▶ syncs ──▶ name

The state of a cut is one that a crash could have left, so the files need not be more than that: the recovery of the
broker reads the logs and makes what is derived from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from stele.wire import record_batch as rb

from ..disk.files import Files
from ..disk.whole_files import write_file
from ..logs.data_dir import START_RECORD, start_record
from ..recovery.checkpoint import (
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    LeaderEpochs,
    write_offsets,
)
from ..segments.partition_files import (
    HOLES_UNTIL,
    PARTITION_METADATA,
    holes_content,
    metadata_content,
)
from ..shared.store.object_store import ConditionalStore, ObjectNotFound
from .chain import CutChain, cut_key
from .cut import CorruptCut, CutHeader
from .downloads import Damaged, DamagedPiece, Downloads, PatientStore
from .moments import Moments, shown_time
from .restore_plan import (
    CatalogTopic,
    Piece,
    Plan,
    PlannedPartition,
    plan_partitions,
    plan_stores,
)
from .staging import Staging
from .state import ReplicaState

_T = TypeVar("_T")

# What a start needs beside the logs.
_SPARE_BYTES = 1 << 20
# A file of so many bytes is synced as soon as it is whole.
_SYNCED_EARLY_BYTES = 1 << 20
# A broker that was restored uses leader epochs that no other one has shown, whatever the chain has lost: they are at
# least the seconds since 2025, as with shared storage (ADR-0071).
_EPOCH_2025_MS = 1_735_689_600_000
# Room for the starts after it, in 32 bits.
_LEADER_EPOCH_MAX = 2**31 - 2**20

# Called in a thread with the directory that has the stores, and the topics that are wanted, None for all: checks and
# prepares the stores, and returns the topics of the catalog. Raises ``RestoreFailed``.
PrepareStores = Callable[[Path, Collection[str] | None], Sequence[CatalogTopic]]
# Called with the bytes that are restored, and all that there are.
Advance = Callable[[int, int], object]


class RestoreFailed(Exception):
    """Nothing was restored; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What was restored. ``time_ms`` is the moment that the directory is as of."""

    sequence: int
    generation: int
    time_ms: int
    topics: int
    partitions: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """``to_ms`` is the moment to go back to, None for the newest; ``topics`` are those that are wanted, None for all.

    ``stores`` are the files of stores that the broker has, and ``advance`` is called for progress.
    """

    stores: Collection[str]
    prepare: PrepareStores
    advance: Advance
    now_ms: int
    to_ms: int | None = None
    topics: Collection[str] | None = None


async def state_for(store: ConditionalStore, to_ms: int | None) -> tuple[ReplicaState, CutHeader]:
    """Return what the newest cut that is not after ``to_ms`` adds up to, and the header of the newest cut of all.

    Raises:
        NoCut: there is none.
        CorruptCut: it cannot be read, or one that it builds on.
        ObjectStoreError: the store does not answer.
    """
    chain = CutChain(store)
    moments = await Moments.of(chain)
    newest = await moments.newest()
    sequence = await moments.newest_at(to_ms)
    try:
        state = await chain.state_at(sequence)
    except ObjectNotFound as error:
        raise CorruptCut(f"{error.key} is missing, which {cut_key(sequence)} builds on") from error
    if not 0 <= newest.leader_epoch < _LEADER_EPOCH_MAX:
        raise CorruptCut(f"{cut_key(newest.sequence)}: {newest.leader_epoch} is no leader epoch")
    return state, newest


async def restore(store: ConditionalStore, files: Files, data_dir: Path, options: RestoreOptions) -> Restored:
    """Make ``data_dir`` from the replica in ``store``.

    It must be empty, or not exist; if this raises, it is as before.

    Raises:
        NoCut: the replica has none that is old enough.
        RestoreFailed: what is in the bucket is damaged, or there is too little space.
        NotEmpty: the directory has data.
        ObjectStoreError: the store does not answer.
        OSError: the disk failed.
    """
    store = PatientStore(store)
    try:
        state, newest = await state_for(store, options.to_ms)
    except CorruptCut as error:
        raise RestoreFailed(f"{error}; --to with an earlier time may help") from error
    return await _Restore(store, files, data_dir, options, state, newest).run()


class _Restore:
    def __init__(
        self,
        store: ConditionalStore,
        files: Files,
        data_dir: Path,
        options: RestoreOptions,
        state: ReplicaState,
        newest: CutHeader,
    ) -> None:
        assert state.header is not None
        self._store = store
        self._files = files
        self._data_dir = data_dir
        self._options = options
        self._state = state
        self._header = state.header
        self._newest = newest
        self._staging = Staging(files, data_dir)
        self._done = self._total = 0
        # Bytes of files that are not there yet, and files that are synced; changed by threads.
        self._left: dict[str, int] = {}
        self._synced: set[str] = set()
        self._counting = threading.Lock()

    async def run(self) -> Restored:
        self._check_topics()
        try:
            await _in_thread(self._begin)
            restored = await self._run()
            await _in_thread(self._staging.finish)
        except (CorruptCut, Damaged) as error:
            await self._abandon()
            raise RestoreFailed(
                f"cut {self._header.sequence} of {shown_time(self._header.time_ms)} cannot be restored: {error}; --to "
                "with an earlier time may help"
            ) from error
        except BaseException:
            await self._abandon()
            raise
        return restored

    async def _run(self) -> Restored:
        planned = plan_stores(self._state, self._options.stores)
        await self._download([piece for _, pieces in planned for piece in pieces])
        topics = await _in_thread(self._options.prepare, self._staging.path, self._options.topics)
        plan = plan_partitions(self._state, topics)
        await _in_thread(self._make_files, plan)
        self._total = self._done + plan.size
        await self._download(plan.pieces)
        small = await _in_thread(self._write_small_files, plan.partitions)
        stores = [file.name for file, _ in planned]
        await _in_thread(self._sync, [*stores, *small], plan.partitions)
        return Restored(
            sequence=self._header.sequence,
            generation=self._header.generation,
            time_ms=self._header.time_ms,
            topics=len(topics),
            partitions=len(plan.partitions),
            size=self._done,
        )

    def _check_topics(self) -> None:
        if self._options.topics is None:
            return
        known = {replica.topic for replica in self._state.partitions.values()}
        if missing := sorted(set(self._options.topics) - known):
            raise RestoreFailed(
                f"the cut of {shown_time(self._header.time_ms)} has no topic {missing[0]!r}: correct the name, or name "
                "a time at which the topic existed with --to"
            )

    def _begin(self) -> None:
        """Make the directory, if there is room for what the cut names."""
        wanted = self._options.topics
        stores = sum(store.size for store in self._state.stores.values())
        logs = sum(
            replica.size
            for replica in self._state.partitions.values()
            if wanted is None or replica.topic in wanted
        )
        self._total = stores + logs
        parent = self._data_dir if self._data_dir.exists() else self._data_dir.parent
        parent.mkdir(parents=True, exist_ok=True)
        _, free = self._files.space(parent)
        needed = self._total + _SPARE_BYTES
        if free < needed:
            raise RestoreFailed(
                f"the disk of {self._data_dir} is too small: the restore needs {needed:,} bytes, and {free:,} are free"
            )
        self._staging.begin()

    async def _abandon(self) -> None:
        # What is left is removed by the next restore.
        with contextlib.suppress(OSError):
            await _in_thread(self._staging.abandon)

    # ── bytes ──

    async def _download(self, pieces: Sequence[Piece]) -> None:
        self._left.update((piece.file.name, piece.file.size) for piece in pieces)
        downloads = Downloads(self._store, sink=self._write, verified=self._verified)
        await downloads.run(pieces, _refuse)

    def _verified(self, piece: Piece) -> None:
        name = piece.file.name
        with self._counting:
            self._done += piece.length
            self._options.advance(self._done, self._total)
            self._left[name] -= piece.length
            is_whole = not self._left[name]
        if is_whole and piece.file.size >= _SYNCED_EARLY_BYTES:
            # While others are on their way, or the disk would have nothing to do until the end.
            file = self._files.open(self._staging.path / name)
            try:
                file.sync()
            finally:
                file.close()
            with self._counting:
                self._synced.add(name)

    def _write(self, piece: Piece, start: int, data: bytes) -> None:
        self._write_at(piece.file.name, piece.at + start, data)

    def _write_at(self, name: str, position: int, data: bytes) -> None:
        file = self._files.open(self._staging.path / name, create=True)
        try:
            file.write_at(position, [data])
        finally:
            file.close()

    # ── files ──

    def _make_files(self, plan: Plan) -> None:
        for partition in plan.partitions:
            self._files.make_dir(self._staging.path / partition.directory)
            for planned in partition.files:
                if not planned.size:
                    self._files.open(self._staging.path / planned.name, create=True).close()

    def _write_small_files(self, partitions: Sequence[PlannedPartition]) -> Collection[str]:
        """Write what is not in objects; return the names of the files that are not synced."""
        root = self._staging.path
        contents: dict[str, bytes] = {}
        log_starts: list[tuple[tuple[str, int], int]] = []
        recovery_points: list[tuple[tuple[str, int], int]] = []
        for partition in partitions:
            directory, replica = partition.directory, partition.replica
            name = (replica.topic, partition.key.partition)
            contents[f"{directory}/{PARTITION_METADATA}"] = metadata_content(UUID(partition.key.topic_id))
            if replica.epochs:
                contents[f"{directory}/{LEADER_EPOCHS}"] = LeaderEpochs(replica.epochs).content()
            if replica.holes_until:
                contents[f"{directory}/{HOLES_UNTIL}"] = holes_content(replica.holes_until)
            if replica.log_start_offset:
                log_starts.append((name, replica.log_start_offset))
            if not self._ends_whole(partition):
                recovery_points.append((name, replica.end_offset))
        # Nobody sees them before all is synced.
        for name, content in contents.items():
            self._write_at(name, 0, content)
        write_offsets(self._files, root / LOG_START_OFFSETS, log_starts)
        if recovery_points:
            write_offsets(self._files, root / RECOVERY_POINTS, recovery_points)
        since_2025_s = (self._options.now_ms - _EPOCH_2025_MS) // 1000
        record = start_record(
            # All that is here is synced. So what recovery finds damaged was damaged before the replica had it, and
            # the records after that stay, as they do where the machine kept running.
            boot_id=self._files.boot_id(),
            leader_epoch=max(self._newest.leader_epoch, self._header.leader_epoch, since_2025_s),
        )
        write_file(self._files, root / START_RECORD, record)
        return contents.keys()

    def _ends_whole(self, partition: PlannedPartition) -> bool:
        """Return whether the log ends with a record, so that recovery finds out where.

        Otherwise offsets at its end were lost, and must not be given out again.
        """
        segments = partition.segments
        if len(segments) < 2 or segments[-1].runs:
            return True
        previous, last = segments[-2:]
        if not previous.runs:
            return False
        position = previous.size - previous.runs[-1].length
        file = self._files.open(self._staging.path / partition.files[-2].name)
        try:
            next_offset = -1
            while position < previous.size:
                header = rb.read_header(file.read_at(position, rb.HEADER_BYTES))
                next_offset, position = header.next_offset, position + header.size
        except rb.CorruptBatchError:
            return False
        finally:
            file.close()
        # After compaction, the last records of a segment may be gone.
        return position == previous.size and (
            next_offset == last.base_offset or partition.replica.holes_until > previous.base_offset
        )

    def _sync(self, small: Sequence[str], partitions: Sequence[PlannedPartition]) -> None:
        root = self._staging.path
        names = [*small]
        for partition in partitions:
            names.append(partition.directory)
            names += [file.name for file in partition.files if file.name not in self._synced]
        syncs = self._files.many_syncs(root)
        try:
            syncs.sync([*(root / name for name in names), root])
        finally:
            syncs.close()


async def _in_thread(work: Callable[..., _T], *arguments: object) -> _T:
    """Return what ``work`` returns; if this is cancelled, it ends first.

    Otherwise what was written would be removed while a thread still writes it, or moves it to its place.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    finally:
        await asyncio.wait([running])


def _refuse(damaged: DamagedPiece) -> None:
    raise Damaged(damaged)
