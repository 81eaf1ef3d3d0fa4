"""Shared parts of the SQL about runs: columns, and calls in the threads of the pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, LiteralString, TypeVar

from ....postgres.connector import Connection, PostgresUnavailable
from ....postgres.pool import PostgresPool
from ..meta import ByteSpan, MetaUnavailable, ObjectRef, RunRead, StoreKind

_T = TypeVar("_T")

RUN_COLUMNS = (
    "b.base_offset, b.last_offset, o.key, o.store, b.pos, b.len, b.max_ts, b.idx, "
    "b.cleaned_until, b.keys_pos, b.keys_len"
)
# The same without the sparse indexes.
SHORT_RUN_COLUMNS = (
    "b.base_offset, b.last_offset, o.key, o.store, b.pos, b.len, b.max_ts, "
    "CASE WHEN b.idx IS NOT NULL THEN ''::bytea END, b.cleaned_until, b.keys_pos, b.keys_len"
)
NOW_MS = "(extract(epoch FROM now()) * 1000)::bigint"


def fetch(connection: Connection, query: LiteralString, *given: Any) -> list[tuple[Any, ...]]:
    return connection.execute(query, given, binary=True).fetchall()


def run_read(row: Sequence[Any]) -> RunRead:
    """Return a run from ``RUN_COLUMNS``."""
    base_offset, last_offset, key, store, position, length, max_timestamp, index = row[:8]
    cleaned_until, keys_position, keys_length = row[8:]
    return RunRead(
        base_offset,
        last_offset,
        ObjectRef(key, StoreKind(store)),
        position,
        length,
        max_timestamp,
        is_merged=index is not None,
        sparse_index=index or b"",
        cleaned_until=cleaned_until or 0,
        keys=None if keys_position is None else ByteSpan(keys_position, keys_length),
    )


class PostgresCalls:
    """Transactions in the threads of ``pool``, which it does not close.

    Failures are ``MetaUnavailable``.
    """

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def _run(self, work: Callable[[Connection], _T]) -> _T:
        try:
            return await self._pool.run(work)
        except PostgresUnavailable as error:
            raise MetaUnavailable(str(error)) from error

    async def _rows(self, query: LiteralString, *given: Any) -> list[tuple[Any, ...]]:
        return await self._run(lambda connection: fetch(connection, query, *given))

    async def _count(self, query: LiteralString, *given: Any) -> int:
        """Return how many rows a statement changed."""
        return await self._run(lambda connection: connection.execute(query, given).rowcount)
