"""A replica whose cuts a test makes by hand, in a store in memory."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

import crc32c

from app.cluster.catalog import TopicRecord
from app.cluster.sqlite.catalog import SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.composition import CATALOG, GROUPS
from app.storage.replica.bucket import CHUNKS, DELTA
from app.storage.replica.chain import cut_key
from app.storage.replica.cut import (
    Change,
    ChunkSpan,
    CutHeader,
    PartitionChange,
    RunSpan,
    SegmentRuns,
    StoreChange,
    encode_cut,
)
from app.storage.shared.store.object_keys import ObjectKeys
from tests.support.batches import batch_of
from tests.support.model_store import ModelStore

INCARNATION = UUID(int=7)
_CHUNK_BYTES = 16 * 1024


def topic_id(number: int) -> UUID:
    return UUID(int=100 + number)


def header_of(
    sequence: int, *, base: int | None = None, generation: int = 1, time_ms: int = -1, oldest_ms: int = -1
) -> CutHeader:
    """Return a header; the moment of a cut is ten times its number unless it is given."""
    return CutHeader(
        sequence=sequence,
        base=sequence if base is None else base,
        generation=generation,
        time_ms=10 * sequence if time_ms < 0 else time_ms,
        cluster_id="a-cluster",
        incarnation=str(INCARNATION),
        leader_epoch=generation,
        oldest_ms=oldest_ms,
    )


class MadeReplica:
    """Tests may change ``store.objects``."""

    def __init__(self) -> None:
        self.store = ModelStore()
        self._keys = {kind: ObjectKeys(kind, INCARNATION) for kind in (DELTA, CHUNKS)}

    def add(self, kind: str, data: bytes) -> str:
        key = self._keys[kind].next(len(data))
        self.store.objects[key] = data
        return key

    def cut(self, header: CutHeader, changes: Sequence[Change] = ()) -> None:
        self.store.objects[cut_key(header.sequence)] = encode_cut(header, changes)

    def store_change(self, name: str, image: bytes) -> StoreChange:
        key = self.add(CHUNKS, image)
        chunks = [
            ChunkSpan(number, key, at, len(chunk), crc32c.crc32c(chunk))
            for number, at in enumerate(range(0, len(image), _CHUNK_BYTES))
            if (chunk := image[at : at + _CHUNK_BYTES])
        ]
        return StoreChange(name=name, size=len(image), chunk_bytes=_CHUNK_BYTES, chunks=tuple(chunks))

    def saved_in(self, directory: Path) -> str:
        """Write all objects below a directory, and return its URL."""
        for key, data in self.store.objects.items():
            path = directory / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return f"file://{directory}"

    def segment(self, base_offset: int, count: int, *parts: bytes) -> SegmentRuns:
        """Return a segment with a run of an object for each part."""
        runs: list[RunSpan] = []
        for part in parts:
            key = self.add(DELTA, b"before" + part + b"after")
            runs.append(RunSpan(key, 6, len(part), crc32c.crc32c(part), base_offset))
        return SegmentRuns(base_offset, base_offset + count, tuple(runs))


def partition_change(
    name: str, number: int, segments: Sequence[SegmentRuns], *, partition: int = 0
) -> PartitionChange:
    return PartitionChange(
        topic_id=str(topic_id(number)),
        partition=partition,
        topic=name,
        log_start_offset=0,
        holes_until=0,
        epochs=((1, 0),),
        kept_from=0,
        changed_from=0,
        segments=tuple(segments),
    )


def store_images(topics: Mapping[str, int]) -> dict[str, bytes]:
    """Return the files of the stores of a broker with these topics, by their number of partitions."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqliteCatalog(Path(folder) / CATALOG)
        for number, (name, partitions) in enumerate(topics.items()):
            catalog.create_topic(
                TopicRecord(name=name, topic_id=topic_id(number), partitions=partitions, configs={})
            )
        catalog.close()
        groups = SqliteGroupStore(Path(folder) / GROUPS)
        groups.open()
        groups.close()
        return {name: _image(Path(folder) / name) for name in (CATALOG, GROUPS)}


def _image(path: Path) -> bytes:
    connection = sqlite3.connect(path)
    try:
        return connection.serialize()
    finally:
        connection.close()


def batch_at(offset: int, values: Sequence[bytes]) -> bytes:
    """Return the bytes of a batch as they are in a log."""
    batch = batch_of(values)
    batch[0:8] = offset.to_bytes(8, "big")
    return bytes(batch)


def made_replica() -> MadeReplica:
    """Return a replica with one cut: a topic of two partitions, one of them with two segments."""
    replica = MadeReplica()
    stores = [replica.store_change(name, image) for name, image in store_images({"orders": 2}).items()]
    first = replica.segment(0, 2, batch_at(0, [b"zero"]), batch_at(1, [b"one"]))
    second = replica.segment(2, 1, batch_at(2, [b"two"]))
    empty = replica.segment(0, 0)
    replica.cut(
        header_of(0),
        [
            *stores,
            partition_change("orders", 0, [first, second]),
            partition_change("orders", 0, [empty], partition=1),
        ],
    )
    return replica
