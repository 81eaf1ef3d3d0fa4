"""Objects in PostgreSQL: the store ``inline``.

A commit puts them there by itself, in its own transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ....postgres.connector import Connection, PostgresUnavailable
from ....postgres.pool import PostgresPool
from ..store.object_store import LIST_MAX, Buffer, ByteRange, ObjectNotFound, ObjectStoreError, StoredObject

_T = TypeVar("_T")

_GET = """
    SELECT octet_length(i.data), substring(i.data FROM r.start + 1 FOR r.length)
    FROM inline_objects i, unnest(%s::int[], %s::int[]) WITH ORDINALITY AS r (start, length, at)
    WHERE i.key = %s ORDER BY r.at
"""
_LIST = """
    SELECT key, octet_length(data) FROM inline_objects
    WHERE key > %s AND key >= %s AND key < %s ORDER BY key LIMIT %s
"""


class PostgresInlineStore:
    """Implements ``ObjectStore``. It uses ``pool``, and does not close it."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    @property
    def is_durable(self) -> bool:
        return True

    async def _run(self, work: Callable[[Connection], _T]) -> _T:
        try:
            return await self._pool.run(work)
        except PostgresUnavailable as error:
            raise ObjectStoreError(str(error)) from error

    async def put(self, key: str, data: Buffer) -> None:
        query = "INSERT INTO inline_objects (key, data) VALUES (%s, %b) ON CONFLICT (key) DO NOTHING"
        await self._run(lambda connection: connection.execute(query, (key, data)))

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        starts = [part.start for part in ranges]
        lengths = [part.end - part.start for part in ranges]
        rows = await self._run(
            lambda connection: connection.execute(_GET, (starts, lengths, key), binary=True).fetchall()
        )
        if not rows:
            raise ObjectNotFound(key)
        for (size, _), wanted in zip(rows, ranges, strict=True):
            if wanted.end > size:
                raise ObjectStoreError(f"object {key!r} has {size} bytes; {wanted.end} were asked for")
        return [data for _, data in rows]

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        # The first key after all that begin with the prefix, which ends with a slash.
        end = prefix[:-1] + chr(ord("/") + 1)
        rows = await self._run(
            lambda connection: connection.execute(_LIST, (after, prefix, end, LIST_MAX)).fetchall()
        )
        return [StoredObject(key, size) for key, size in rows]

    async def delete(self, keys: Sequence[str]) -> None:
        query = "DELETE FROM inline_objects WHERE key = ANY (%s::text[])"
        await self._run(lambda connection: connection.execute(query, (list(keys),)))

    async def close(self) -> None:
        """Do nothing: the pool has an owner."""
