"""The newest snapshots of topics that are Iceberg tables: what a statement reads from files, and not from the log."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec
from stele.wire import sql_frames as frames

from ..broker.topics import Topic
from ..errors import StorageUnavailable

_ERRORS = "_errors"
# Tables whose newest snapshots are kept, those of errors among them.
_KNOWN_MAX = 1000


class TableMetadata(Protocol):
    """The metadata of a table: its JSON, and where it is."""

    @property
    def location(self) -> str: ...
    @property
    def text(self) -> bytes: ...


class Catalog(Protocol):
    """The tables, and the files of their warehouse. Raises ``StorageUnavailable``."""

    async def load(self, name: str) -> TableMetadata | None: ...
    async def read(self, location: str, start: int, end: int | None) -> bytes: ...


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    manifest_list: str = ""
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}


class _Schema(msgspec.Struct, rename="kebab"):
    schema_id: int
    fields: msgspec.Raw


class _Metadata(msgspec.Struct, rename="kebab"):
    location: str
    properties: dict[str, str] = {}
    current_schema_id: int = 0
    current_snapshot_id: int | None = None
    snapshots: list[_Snapshot] = []
    schemas: list[_Schema] = []


class TableFiles(NamedTuple):
    """What is read of a table and of that of its errors, and the directories in which all of it is."""

    rows: frames.Snapshot | None = None
    errors: frames.Snapshot | None = None
    roots: tuple[str, ...] = ()


class Snapshots:
    """Finds snapshots of topics, and reads their files."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: dict[str, _Known] = {}

    async def of(self, topic: Topic) -> TableFiles:
        """Return the snapshots of a topic; none if all is read from the log. Raises ``StorageUnavailable``."""
        mode = topic.config.iceberg_mode
        if mode == "off":
            return TableFiles()
        rows = await self._newest(topic, topic.name, mode)
        if rows is None:
            return TableFiles()
        # Errors are committed before the records beside them.
        errors = await self._newest(topic, topic.name + _ERRORS, "errors")
        if errors is None:
            return TableFiles(rows[0], None, rows[1:])
        return TableFiles(rows[0], errors[0], (rows[1], errors[1]))

    async def read(self, files: TableFiles, question: frames.Read) -> bytes:
        """Return bytes of a file of these tables. Raises ``StorageUnavailable``."""
        path = question.path
        if not path.startswith(files.roots) or ".." in path.split("/"):
            raise StorageUnavailable("reading a table", f"{path} is not of the table")
        return await self._catalog.read(path, question.start, question.end)

    async def _newest(self, topic: Topic, name: str, rows: str) -> tuple[frames.Snapshot, str] | None:
        metadata = await self._catalog.load(name)
        if metadata is None:
            return None
        known = self._known.get(name)
        if known is None or known.location != metadata.location:
            # It takes milliseconds where there are many snapshots.
            known = self._known[name] = _known(metadata)
            if len(self._known) > _KNOWN_MAX:
                del self._known[next(iter(self._known))]
        # In other modes, the mode was changed after the table was made; nothing is written to it until somebody drops it.
        if known.snapshot is None or known.topic_id != str(topic.topic_id) or known.rows not in ("", rows):
            return None
        return known.snapshot, known.root


class _Known(NamedTuple):
    """What is needed of the metadata at ``location``; there is no snapshot if none has offsets."""

    location: str
    snapshot: frames.Snapshot | None = None
    topic_id: str = ""
    rows: str = ""
    root: str = ""


def _known(metadata: TableMetadata) -> _Known:
    table = msgspec.json.decode(metadata.text, type=_Metadata)
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots}
    current = found = snapshots.get(table.current_snapshot_id or -1)
    # One without offsets has rewritten files, and has the records of its parent.
    while found is not None and "stele.offsets" not in found.summary:
        found = snapshots.get(found.parent_snapshot_id or -1)
    if current is None or found is None:
        return _Known(metadata.location)
    (fields,) = (schema.fields for schema in table.schemas if schema.schema_id == table.current_schema_id)
    offsets = msgspec.json.decode(found.summary["stele.offsets"], type=dict[int, int])
    return _Known(
        metadata.location,
        frames.Snapshot(current.manifest_list, offsets, bytes(fields)),
        found.summary.get("stele.topic-id", ""),
        table.properties.get("stele.rows", ""),
        f"{table.location}/",
    )
