"""Upkeep of an Iceberg table: compacts small files, expires snapshots, removes files that no snapshot names.

Each step either commits as a whole or changes nothing that a reader sees. A commit that meets another one loses, and
the step is done again when it is next due. A process that is killed leaves files that no snapshot names; the last step
removes them once they are old, and those of expired snapshots once two looks have found them so.
"""

from __future__ import annotations

import logging
import posixpath
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.fs
import pyarrow.parquet
import pyiceberg.io.pyarrow
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSchemasUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
)
from pyiceberg.table.update.snapshot import _OverwriteFiles

from ..wire.arrow_types import RecordBatch, pa
from .tables import OFFSETS, TOPIC_ID

_fs: Any = pyarrow.fs
_pq: Any = pyarrow.parquet
_arrow: Any = pyiceberg.io.pyarrow
logger: logging.Logger = logging.getLogger(__name__)


# The default of a topic's stele.iceberg.snapshot.retention.ms.
RETENTION_MS = 24 * 3600 * 1000
_TARGET_BYTES = 128 * 1024 * 1024
# A file that is nearly as large as the target is not written again.
_SMALL_SHARE = 0.75
# Fewer small files are left alone; so many more files a day does every partition of the table have at most.
_FILES_MIN = 8
# Arrow memory that is read and written at a time; each is a row group.
_BATCH_BYTES = 32 * 1024 * 1024
# Names in memory while files that no snapshot names are looked for. A larger table keeps them.
_NAMES_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOptions:
    """What upkeep does, and how often."""

    target_bytes: int = _TARGET_BYTES
    # A snapshot can be read for this long after the next one has replaced it.
    retention_ms: int = RETENTION_MS
    snapshots_min: int = 10
    # Younger files may belong to a commit in progress, of this process or of one that it has replaced.
    unnamed_age_ms: int = 3600 * 1000
    interval_ms: int = 10 * 60 * 1000
    # Files of a snapshot stay for this long after it has expired.
    removal_interval_ms: int = 3600 * 1000
    # Of each step. The process adds no records to tables meanwhile.
    step_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepReport:
    """What a run has done."""

    rewritten_files: int = 0
    written_files: int = 0
    expired_snapshots: int = 0
    removed_files: int = 0


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Upkeep:
    """The upkeep of one table by one process."""

    def __init__(
        self, options: UpkeepOptions | None = None, *, now_ms: Callable[[], int] = _wall_clock_ms
    ) -> None:
        self._options = options or UpkeepOptions()
        self._now_ms = now_ms
        self._due_ms = self._removal_due_ms = 0
        self._unnamed: frozenset[str] = frozenset()

    @property
    def is_due(self) -> bool:
        return self._now_ms() >= self._due_ms

    def run(self, table: Table) -> UpkeepReport:
        """Do what is due; ``table`` is refreshed. Raises what the catalog and the file system raise."""
        options, now_ms = self._options, self._now_ms()
        if not self.is_due:
            return UpkeepReport()
        self._due_ms = now_ms + options.interval_ms
        # Compaction last: if it fails, metadata must not grow without end.
        expired = expire_snapshots(table, options, now_ms)
        removed = 0
        if now_ms >= self._removal_due_ms:
            self._removal_due_ms = now_ms + options.removal_interval_ms
            unnamed = unnamed_files(table, options, now_ms)
            # Named at the look before, perhaps: who reads a snapshot that has just expired needs them.
            removed = _remove(table, sorted(unnamed & self._unnamed), options)
            self._unnamed = unnamed
        rewritten, written = compact(table, options)
        return UpkeepReport(
            rewritten_files=rewritten,
            written_files=written,
            expired_snapshots=expired,
            removed_files=removed,
        )


# ── small files ──


class _Rewrite(_OverwriteFiles):
    """A snapshot with the same rows in other files, which readers of changes may skip."""

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - the same as of the base
        # pyiceberg computes the totals of none but its own operations.
        summary = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **summary.additional_properties)


def compact(table: Table, options: UpkeepOptions) -> tuple[int, int]:
    """Write small files of a partition into one; return how many files were replaced, and by how many.

    All rows and the offsets of the snapshot stay. Nothing is changed if another commit comes first.
    """
    table.refresh()
    began_s = time.monotonic()
    old: list[DataFile] = []
    new: list[DataFile] = []
    for group in _groups(table, options.target_bytes):
        new.append(_written(table, group))
        old += group
        if time.monotonic() - began_s >= options.step_s:
            break
    if not new:
        return 0, 0
    try:
        # This process may have been paused, and another one removes old files that no snapshot names.
        if time.monotonic() - began_s > options.unnamed_age_ms / 2000:
            raise CommitFailedException("it took too long")
        _commit_rewrite(table, old, new)
    except (CommitFailedException, ValidationException) as reason:
        logger.info("compaction of %s is put off: %s", ".".join(table.name()), reason)
        for file in new:
            table.io.delete(file.file_path)
        return 0, 0
    return len(old), len(new)


def _groups(table: Table, target_bytes: int) -> Iterator[list[DataFile]]:
    """Return small files that are to become one, of one partition each, in the order in which they were added."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else snapshot.manifests(table.io)
    if any(manifest.content is ManifestContent.DELETES for manifest in manifests):
        # Not by Stele. They would not apply to files that are written again.
        return
    partitions: dict[Any, list[ManifestEntry]] = {}
    for manifest in manifests:
        if manifest.partition_spec_id != table.metadata.default_spec_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            is_small = file.file_size_in_bytes < _SMALL_SHARE * target_bytes
            if is_small and file.content is DataFileContent.DATA and file.file_format is FileFormat.PARQUET:
                partitions.setdefault(file.partition, []).append(entry)
    for entries in partitions.values():
        for group in grouped(entries, target_bytes):
            yield [entry.data_file for entry in sorted(group, key=_added)]


def _added(entry: ManifestEntry) -> tuple[int, str]:
    return entry.sequence_number or 0, entry.data_file.file_path


def grouped(entries: Sequence[ManifestEntry], target_bytes: int) -> Iterator[list[ManifestEntry]]:
    """Divide files of one partition into groups to be written.

    A file joins smaller ones only if they are together as large as it is. Each time that a row is written again its file
    is thus twice as large, at least: rows of a file a minute are written some five times, not a hundred times.
    """
    group: list[ManifestEntry] = []
    total = smallest = 0
    for entry in sorted(entries, key=lambda entry: entry.data_file.file_size_in_bytes):
        size = entry.data_file.file_size_in_bytes
        # The first eight differ by chance.
        if total + size > target_bytes or size > max(total, 4 * smallest):
            if len(group) >= _FILES_MIN:
                yield group
            group, total, smallest = [], 0, size
        group.append(entry)
        total += size
    if len(group) >= _FILES_MIN:
        yield group


def _written(table: Table, files: Sequence[DataFile]) -> DataFile:
    """Write the rows of ``files``, of one partition, into a new file, a row group at a time."""
    schema, spec, io = table.schema(), table.spec(), table.io
    file_schema = sanitize_column_names(schema)
    name = f"compacted-{uuid.uuid4()}.parquet"
    partition = files[0].partition
    if spec.fields:
        name = f"{spec.partition_to_path(partition, schema)}/{name}"
    output = io.new_output(table.location_provider().new_data_location(name))
    model = FileFormatFactory.get(FileFormat.PARQUET)
    with model.create_writer(output, file_schema, table.properties) as writer:
        for file in files:
            for batch in _batches(table, file):
                fields = _arrow.pyarrow_to_schema(batch.schema, schema.name_mapping)
                rows = _arrow._to_requested_schema(
                    file_schema, fields, batch, include_field_ids=True, format_model=model
                )
                writer.write(pa.Table.from_batches([rows]))
    statistics = writer.result()
    expected = sum(file.record_count for file in files)
    if statistics.record_count != expected:
        raise ValueError(f"{output.location} has {statistics.record_count} rows, not {expected}")
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=len(output),
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _batches(table: Table, file: DataFile) -> Iterator[RecordBatch]:
    with table.io.new_input(file.file_path).open() as stream, _pq.ParquetFile(stream) as parquet:
        metadata = parquet.metadata
        size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        rows = max(1, metadata.num_rows * _BATCH_BYTES // max(1, size))
        yield from parquet.iter_batches(batch_size=rows)


def _commit_rewrite(table: Table, old: Sequence[DataFile], new: Sequence[DataFile]) -> None:
    """Replace ``old`` by ``new``. Raises ``CommitFailedException`` if another commit came first.

    Not by a transaction of pyiceberg, which repeats a commit on the other one's snapshot: with the offsets of before it.
    """
    rewrite = _Rewrite(
        operation=Operation.OVERWRITE,
        transaction=table.transaction(),
        io=table.io,
        snapshot_properties=_kept_properties(table.metadata),
    )
    for file in old:
        rewrite.delete_data_file(file)
    for file in new:
        rewrite.append_data_file(file)
    try:
        updates, requirements = rewrite._commit()
        table.catalog.commit_table(table, (*requirements, _same_table(table)), updates)
    except (CommitFailedException, ValidationException):
        rewrite._clean_all_uncommitted()
        raise
    table.refresh()


def _same_table(table: Table) -> TableRequirement:
    return AssertTableUUID(uuid=table.metadata.table_uuid)


def _kept_properties(metadata: TableMetadata) -> dict[str, str]:
    """Return the offsets and the topic of the current snapshot, or of the ancestor that had them last."""
    snapshot = metadata.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary
        if summary is not None and OFFSETS in summary.additional_properties:
            properties = summary.additional_properties
            return {name: properties[name] for name in (OFFSETS, TOPIC_ID) if name in properties}
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    return {}


# ── old snapshots ──


def expire_snapshots(table: Table, options: UpkeepOptions, now_ms: int) -> int:
    """Remove snapshots from the metadata that were replaced long ago, and their schemas; return how many."""
    expired = expired_snapshots(table.metadata, options, now_ms)
    if not expired:
        return 0
    head = table.metadata.current_snapshot()
    assert head is not None
    # A commit that came first may have made a tag of one of them.
    same_head = AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": head.snapshot_id})
    try:
        table.catalog.commit_table(
            table,
            (same_head, _same_table(table)),
            (
                RemoveSnapshotsUpdate.model_validate({"snapshot-ids": expired}),
                *_without_schemas(table.metadata, expired),
            ),
        )
    except CommitFailedException as reason:
        logger.info("snapshots of %s expire later: %s", ".".join(table.name()), reason)
        return 0
    table.refresh()
    return len(expired)


def _without_schemas(metadata: TableMetadata, expired: Sequence[int]) -> Iterator[RemoveSchemasUpdate]:
    """Remove the schemas of expired snapshots, which have all columns of a table each."""
    named = {each.schema_id for each in metadata.snapshots if each.snapshot_id not in expired}
    named.add(metadata.current_schema_id)
    old = [schema.schema_id for schema in metadata.schemas if schema.schema_id not in named]
    if old:
        yield RemoveSchemasUpdate.model_validate({"schema-ids": old})


def expired_snapshots(metadata: TableMetadata, options: UpkeepOptions, now_ms: int) -> list[int]:
    """Return the ids of snapshots that may go.

    The age of a snapshot counts from the one that replaced it: who has read the newest one just now may go on, also if
    that had been the newest for days. Those down to the newest one with offsets stay, because the process that adds
    records begins at them, and so do branches and tags.
    """
    cutoff_ms = now_ms - options.retention_ms
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    snapshot, replaced_ms, count, has_offsets = metadata.current_snapshot(), now_ms, 0, False
    while snapshot is not None:
        if count >= options.snapshots_min and has_offsets and replaced_ms < cutoff_ms:
            break
        kept.add(snapshot.snapshot_id)
        count += 1
        summary = snapshot.summary
        has_offsets = has_offsets or (summary is not None and OFFSETS in summary.additional_properties)
        replaced_ms, parent = snapshot.timestamp_ms, snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
    return [
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in kept and snapshot.timestamp_ms < cutoff_ms
    ]


# ── files that no snapshot names ──


def unnamed_files(table: Table, options: UpkeepOptions, now_ms: int) -> frozenset[str]:
    """Return the paths of old files beneath the table that its metadata does not name."""
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return frozenset()

    def path_of(location: str) -> str:
        return posixpath.normpath(io.parse_location(location, io.properties)[2])

    table.refresh()
    ages = _ages(_system_of(table), path_of(table.location()))
    if path_of(table.metadata_location) not in ages:
        # The file system shows other paths than metadata has, so that no file would seem to be named.
        logger.warning("files of %s are not removed: they are listed by other names", table.location())
        return frozenset()
    old = {path for path, ms in ages.items() if ms < now_ms - options.unnamed_age_ms}
    # After the files were listed: what was committed meanwhile is named.
    table.refresh()
    return frozenset(old.difference(map(path_of, _named_files(table))))


def _remove(table: Table, paths: Sequence[str], options: UpkeepOptions) -> int:
    """Delete files until the time of a step is over; return how many."""
    until_s = time.monotonic() + options.step_s
    for number, path in enumerate(paths):
        if time.monotonic() >= until_s:
            return number
        _system_of(table).delete_file(path)
    return len(paths)


def _system_of(table: Table) -> Any:
    """Return the file system of a table, whose files are those of Arrow."""
    io: Any = table.io
    scheme, netloc, _ = io.parse_location(table.location(), io.properties)
    return io.fs_by_scheme(scheme, netloc)


def _ages(system: Any, base: str) -> dict[str, int]:
    """Return when each file of a table was last written; none if there are too many."""
    found: dict[str, int] = {}
    # These two, not all that is beneath the table: what another program has put there is not touched.
    folders = [f"{base}/data", f"{base}/metadata"]
    while folders:
        for info in system.get_file_info(_fs.FileSelector(folders.pop(), allow_not_found=True)):
            if info.type is _fs.FileType.Directory:
                folders.append(info.path)
            elif info.is_file and info.mtime_ns is not None:
                found[posixpath.normpath(info.path)] = info.mtime_ns // 1_000_000
        if len(found) > _NAMES_MAX:
            logger.warning("%s has too many files to look for those that no snapshot names", base)
            return {}
    return found


def _named_files(table: Table) -> Iterator[str]:
    """Return the locations of all files of all snapshots, each at least once."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics))
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io):
                    yield entry.data_file.file_path
