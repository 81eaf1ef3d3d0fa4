"""Check that all brokers of a cluster keep their records in the same object store.

With another one, a broker would acknowledge records that no other broker finds. The first broker with an object
store gives it an id: an object ``identity/<id>`` there, and a row in PostgreSQL. Each start compares them, or the
first upload if the store could not be reached then. Several clusters may share a store, and who copies a store
copies its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID, uuid4

from ...postgres.connector import PostgresUnavailable
from ...postgres.pool import PostgresPool
from ..setup_problems import InvalidStorage, store_problem
from .meta import StoreKind
from .store.object_store import Buffer, ByteRange, ObjectNotFound, ObjectStore, ObjectStoreError, StoredObject

logger = logging.getLogger(__name__)

_CONTENT = b"stele"
_NEWEST = "SELECT key FROM objects WHERE store = %s AND state = 'c' ORDER BY object_id DESC LIMIT 1"


async def check_inline(pool: PostgresPool) -> None:
    """Check that the cluster keeps its records in PostgreSQL.

    Raises:
        InvalidStorage: it has an object store.
        PostgresUnavailable: the database cannot be reached.
    """
    if await _known_id(pool) is not None or await _newest_key(pool) is not None:
        raise InvalidStorage(
            "this cluster keeps records in an object store: set STELE_OBJECT_STORE to that of the other brokers"
        )


class IdentifiedStore:
    """Implements ``ObjectStore`` over another one.

    It writes nothing until that is known to be the store of the cluster.
    """

    def __init__(self, store: ObjectStore, pool: PostgresPool, url: str) -> None:
        self.inner = store
        self._pool = pool
        self._url = url
        self._is_identified = False
        self._lock = asyncio.Lock()

    @property
    def is_durable(self) -> bool:
        return self.inner.is_durable

    async def put(self, key: str, data: Buffer) -> None:
        if not self._is_identified:
            try:
                await self.identify()
            except (InvalidStorage, PostgresUnavailable) as error:
                raise ObjectStoreError(str(error)) from error
        await self.inner.put(key, data)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        return await self.inner.get_ranges(key, ranges)

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        return await self.inner.list_page(prefix, after=after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self.inner.delete(keys)

    async def close(self) -> None:
        await self.inner.close()

    async def identify(self) -> None:
        """Check that the store is the one of the cluster; the first broker decides.

        Raises:
            InvalidStorage: it is another one, or refuses what the check needs.
            ObjectStoreError: it cannot be reached.
            PostgresUnavailable: the database cannot be reached.
        """
        async with self._lock:
            if not self._is_identified:
                try:
                    await self._identify()
                except ObjectStoreError as error:
                    problem = store_problem(self._url, str(error))
                    if problem.is_mistake:
                        raise InvalidStorage(problem.text) from error
                    raise
                self._is_identified = True

    async def _identify(self) -> None:
        known, own = await _known_id(self._pool), None
        if known is None:
            own = uuid4()
            known = await self._claim(own)
        if known != own and not await self._has(_key_of(known)):
            newest = await _newest_key(self._pool)
            if newest is None or not await self._has(newest):
                raise self._is_another(_key_of(known))
            logger.warning("the object store %s has lost %s; it is written again", self._url, _key_of(known))
            await self.inner.put(_key_of(known), _CONTENT)

    async def _claim(self, own: UUID) -> UUID:
        """Return the id of this store, or of that of a broker that was faster."""
        newest = await _newest_key(self._pool)
        if newest is not None and not await self._has(newest):
            raise self._is_another(newest)
        # First, or a start that ends in between would leave a cluster that refuses every store.
        await self.inner.put(_key_of(own), _CONTENT)
        claim = "INSERT INTO object_store (id) VALUES (%s) ON CONFLICT DO NOTHING"
        await self._pool.run(lambda connection: connection.execute(claim, (own,)))
        known = await _known_id(self._pool)
        if known is None:
            raise InvalidStorage("the table object_store in PostgreSQL was emptied meanwhile: start again")
        if known != own:
            try:
                await self.inner.delete([_key_of(own)])
            except ObjectStoreError as error:
                logger.info("%s stays in the object store, and is of no use: %s", _key_of(own), error)
        return known

    async def _has(self, key: str) -> bool:
        try:
            await self.inner.get_ranges(key, [ByteRange(0, 1)])
        except ObjectNotFound:
            return False
        return True

    def _is_another(self, missing: str) -> InvalidStorage:
        return InvalidStorage(
            f"the object store {self._url} is not the one with the records of this cluster: it has no object"
            f" {missing}. Set STELE_OBJECT_STORE to that of the other brokers"
        )


def _key_of(store_id: UUID) -> str:
    return f"identity/{store_id}"


async def _known_id(pool: PostgresPool) -> UUID | None:
    row = await pool.run(lambda connection: connection.execute("SELECT id FROM object_store").fetchone())
    return None if row is None else row[0]


async def _newest_key(pool: PostgresPool) -> str | None:
    """Return the key of the newest object with records in an object store."""
    kind = StoreKind.OBJECTS.value
    row = await pool.run(lambda connection: connection.execute(_NEWEST, (kind,)).fetchone())
    return None if row is None else row[0]
