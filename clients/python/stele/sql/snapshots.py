"""The Parquet files of a topic that is an Iceberg table, as rows beside those of its log."""

from __future__ import annotations

from functools import lru_cache

from ..wire import sql_frames as frames

_FILE = "file://"
_SNAPSHOTS_MAX = 16
_COLUMNS = 'partition, "offset", timestamp, key, headers, value'


def files_of(snapshot: frames.Snapshot | None) -> list[str]:
    """Return the paths of the data files of a snapshot.

    Raises:
        ValueError: it has files that delete rows, which the writer of these tables never makes.
        OSError: the metadata cannot be read.
    """
    return [] if snapshot is None else _files_of(snapshot.location, snapshot.snapshot_id)


# A snapshot never changes.
@lru_cache(maxsize=_SNAPSHOTS_MAX)
def _files_of(location: str, snapshot_id: int) -> list[str]:
    # Its import takes a second, which statements over logs alone do not need.
    from pyiceberg.table import StaticTable

    tasks = list(StaticTable.from_metadata(location).scan(snapshot_id=snapshot_id).plan_files())
    if any(task.delete_files for task in tasks):
        raise ValueError(f"the table {location} has files that delete rows, so it is not read")
    return sorted(task.file.file_path.removeprefix(_FILE) for task in tasks)


def rows_of(log: str, files: list[str], errors: list[str], snapshot: frames.Snapshot | None) -> str:
    """Return a FROM clause of the rows of a snapshot, of its errors and of ``log``, which is quoted."""
    parts = [f"select {_COLUMNS} from {log}"]  # noqa: S608
    if files:
        parts.append(f"select {_COLUMNS} from read_parquet({_list(files)})")  # noqa: S608
    if errors and snapshot is not None:
        # Errors are committed before the records beside them: they may be ahead.
        ends = [snapshot.offsets.get(number, 0) for number in range(max(snapshot.offsets, default=-1) + 1)]
        condition = f'"offset" < coalesce({ends}[partition + 1], 0)'
        parts.append(f"select {_COLUMNS} from read_parquet({_list(errors)}) where {condition}")  # noqa: S608
    return f"({' union all '.join(parts)})"


def _list(paths: list[str]) -> str:
    texts = ("'" + path.replace("'", "''") + "'" for path in paths)
    return f"[{', '.join(texts)}]"
