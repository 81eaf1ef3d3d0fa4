"""Reads the catalog of the Iceberg tables, without pyiceberg.

The process that writes the tables keeps them with pyiceberg's ``SqlCatalog``: a row per table has the location of its
newest metadata file, and each commit writes a file and replaces the location. A file never changes, so it is cached
by its location.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple
from urllib.parse import urlsplit

import msgspec
from stele.wire.bucket_url import bucket_properties

from ..errors import StorageUnavailable

if TYPE_CHECKING:
    from ..postgres.pool import PostgresPool
    from ..storage.shared.store.obstore import ObstoreStore

CATALOG_NAME = NAMESPACE = "stele"
# A snapshot takes about a kilobyte: upkeep removes them long before. What is larger is not answered.
METADATA_BYTES_MAX = 64 * 1024 * 1024
# Of all cached files together; the newest one of a table is mostly some hundred kilobytes.
CACHED_BYTES_MAX = 64 * 1024 * 1024
# Files that are read at the same time, each of which takes memory.
_READS_MAX = 4
# A writer holds the catalog for the time of one statement.
_BUSY_S = 2.0

# Runs a statement with its parameters in a thread; the placeholder is that of the database.
Select = Callable[[LiteralString, Sequence[str]], Awaitable[list[tuple[Any, ...]]]]

_OF_NAMESPACE: LiteralString = (
    "FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND metadata_location IS NOT NULL"
)


class TableMetadata(NamedTuple):
    """The metadata of a table: JSON as the specification of Iceberg defines it, and where it is."""

    location: str
    text: bytes


class _Head(msgspec.Struct):
    """What every metadata file has; to decode it checks that the file is whole."""

    format_version: int = msgspec.field(name="format-version")


class IcebergCatalog:
    """The tables of one catalog; ``warehouse`` is the URL that says how to reach a bucket."""

    def __init__(self, select: Select, *, warehouse: str) -> None:
        self._select = select
        self._warehouse, self._options = warehouse, warehouse.partition("?")[2]
        self._stores: dict[str, ObstoreStore] = {}
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._reads = asyncio.Semaphore(_READS_MAX)

    @property
    def client_properties(self) -> dict[str, str]:
        """Return how clients reach a bucket, by the names of Iceberg's configuration, without credentials."""
        return bucket_properties(self._warehouse, os.environ)

    async def list_tables(self) -> list[str]:
        """Return the names of all tables, sorted. Raises ``StorageUnavailable``."""
        rows = await self._select(f"SELECT table_name {_OF_NAMESPACE}", (CATALOG_NAME, NAMESPACE))
        return sorted(str(name) for (name,) in rows)

    async def load(self, name: str) -> TableMetadata | None:
        """Return the newest metadata of a table, None if there is no such table. Raises ``StorageUnavailable``."""
        location = await self._location(name)
        while location is not None:
            try:
                return TableMetadata(location, await self._text(location))
            except FileNotFoundError:
                # Commits remove old files, perhaps between the two reads.
                last, location = location, await self._location(name)
                if location == last:
                    raise _unavailable(f"the metadata file {last} of table {name!r} is missing") from None
        return None

    async def read(self, location: str, start: int = 0, end: int | None = None) -> bytes:
        """Return bytes of a file of a table, all of it without ``end``. Raises ``StorageUnavailable``."""
        try:
            return await self._bytes(location, start, end)
        except (OSError, ValueError) as error:
            raise _unavailable(f"{location}: {error}") from error

    async def _location(self, name: str) -> str | None:
        statement = f"SELECT metadata_location {_OF_NAMESPACE} AND table_name = ?"
        rows = await self._select(statement, (CATALOG_NAME, NAMESPACE, name))
        return None if not rows else str(rows[0][0])

    async def _text(self, location: str) -> bytes:
        """Return a metadata file. Raises ``FileNotFoundError``, ``StorageUnavailable``."""
        if location not in self._cache:
            async with self._reads:
                # Another request may have read it meanwhile.
                if location not in self._cache:
                    self._keep(location, await self._read(location))
        self._cache.move_to_end(location)
        return self._cache[location]

    def _keep(self, location: str, text: bytes) -> None:
        self._cache[location] = text
        self._cached_bytes += len(text)
        while self._cached_bytes > CACHED_BYTES_MAX and len(self._cache) > 1:
            self._cached_bytes -= len(self._cache.popitem(last=False)[1])

    async def _read(self, location: str) -> bytes:
        try:
            text = await self._bytes(location, 0, None)
            await asyncio.to_thread(msgspec.json.decode, text, type=_Head)
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            raise _unavailable(f"{location}: {error}") from error
        return text

    async def _bytes(self, location: str, start: int, end: int | None) -> bytes:
        parts = urlsplit(location)
        if parts.scheme in ("", "file"):
            # As pyiceberg writes it: no percent-encoding is undone.
            return await asyncio.to_thread(_read_file, Path(parts.path), start, end)
        return await self._read_object(parts.scheme, parts.netloc, parts.path.lstrip("/"), start, end)

    async def _read_object(self, scheme: str, bucket: str, key: str, start: int, end: int | None) -> bytes:
        # In a thread, because it imports much the first time.
        store = await asyncio.to_thread(self._store, f"{scheme}://{bucket}")
        from ..storage.shared.store.object_store import ByteRange, ObjectNotFound, ObjectStoreError

        try:
            if end is None:
                return await store.get(key, bytes_max=METADATA_BYTES_MAX)
            (part,) = await store.get_ranges(key, (ByteRange(start, end),))
        except ObjectNotFound:
            raise FileNotFoundError(key) from None
        except ObjectStoreError as error:
            raise OSError(str(error)) from error
        return part

    def _store(self, url: str) -> ObstoreStore:
        store = self._stores.get(url)
        if store is None:
            try:
                from ..storage.shared.store.urls import open_object_store
            except ImportError as error:
                raise OSError(
                    f"a bucket needs the extra bucket ({error}): pip install 'stele-broker[bucket]'"
                ) from error
            store = self._stores[url] = open_object_store(f"{url}?{self._options}" if self._options else url)
        return store


def _unavailable(reason: str) -> StorageUnavailable:
    return StorageUnavailable("reading the catalog of Iceberg tables", reason)


def _read_file(path: Path, start: int, end: int | None) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(METADATA_BYTES_MAX + 1 if end is None else end - start)
    if len(data) > METADATA_BYTES_MAX:
        raise ValueError(f"it has more than {METADATA_BYTES_MAX} bytes")
    return data


def select_in_file(path: Path) -> Select:
    """Return what reads the catalog of a standalone broker; without the file there is no table."""
    # Not mode=ro: a writer that was killed in a commit leaves a journal, which only a connection that may write undoes.
    url = f"{path.absolute().as_uri()}?mode=rw"

    def select(statement: LiteralString, parameters: Sequence[str]) -> list[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(url, uri=True, timeout=_BUSY_S)) as connection:
                connection.execute("PRAGMA query_only = ON")
                return connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if not path.exists() or "no such table" in str(error):
                return []
            raise _unavailable(f"{path}: {error}") from error

    return lambda statement, parameters: asyncio.to_thread(select, statement, parameters)


def select_in_postgres(pool: PostgresPool) -> Select:
    """Return what reads the catalog of a cluster; without the table in its schema there is none."""
    from ..postgres.connector import Connection, PostgresUnavailable

    async def select(statement: LiteralString, parameters: Sequence[str]) -> list[tuple[Any, ...]]:
        def work(connection: Connection) -> list[tuple[Any, ...]]:
            row = connection.execute("SELECT to_regclass('iceberg_tables')").fetchone()
            if row is None or row[0] is None:
                return []
            return connection.execute(statement.replace("?", "%s"), parameters).fetchall()

        try:
            return await pool.run(work)
        except PostgresUnavailable as error:
            raise _unavailable(str(error)) from error

    return select
