"""The newest snapshots of topics that are Iceberg tables: what a statement reads from files, and not from the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Protocol

import msgspec
from stele.wire import sql_frames as frames

from ..broker.topics import Topic

_FILE = "file://"
_ERRORS = "_errors"


class TableMetadata(Protocol):
    """The metadata of a table: its JSON, and where it is."""

    @property
    def location(self) -> str: ...
    @property
    def text(self) -> bytes: ...


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    parent_snapshot_id: int | None = None
    summary: dict[str, str] = {}


class _Metadata(msgspec.Struct, rename="kebab"):
    current_snapshot_id: int | None = None
    snapshots: list[_Snapshot] = []


class Snapshots:
    """Finds snapshots; ``load`` returns the metadata of a table, None if there is no such table."""

    def __init__(self, load: Callable[[str], Awaitable[TableMetadata | None]]) -> None:
        self._load = load
        self._can_read = find_spec("pyiceberg") is not None

    async def of(self, topic: Topic) -> tuple[frames.Snapshot | None, frames.Snapshot | None]:
        """Return the snapshot of a topic, and that of its errors; None if all is read from the log.

        That is also so if its values are columns of the table, or its files are in a bucket.

        Raises ``StorageUnavailable``.
        """
        if not self._can_read or topic.config.iceberg_mode != "key_value":
            return None, None
        snapshot = await self._newest(topic.name, str(topic.topic_id))
        if snapshot is None:
            return None, None
        # Errors are committed before the records beside them.
        return snapshot, await self._newest(topic.name + _ERRORS, str(topic.topic_id))

    async def _newest(self, name: str, topic_id: str) -> frames.Snapshot | None:
        metadata = await self._load(name)
        if metadata is None or not metadata.location.startswith(_FILE):
            return None
        decoded = msgspec.json.decode(metadata.text, type=_Metadata)
        known = {snapshot.snapshot_id: snapshot for snapshot in decoded.snapshots}
        current = found = known.get(decoded.current_snapshot_id or -1)
        # One without offsets has rewritten files, and has the records of its parent.
        while found is not None and "stele.offsets" not in found.summary:
            found = known.get(found.parent_snapshot_id or -1)
        if current is None or found is None or found.summary.get("stele.topic-id") != topic_id:
            return None
        offsets = msgspec.json.decode(found.summary["stele.offsets"], type=dict[int, int])
        return frames.Snapshot(metadata.location, current.snapshot_id, offsets)
