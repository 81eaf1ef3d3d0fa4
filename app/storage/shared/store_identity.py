"""Check that all brokers of a cluster keep their records in the same object store.

With another one, a broker would acknowledge records that no other broker finds. The first broker with an object
store gives it an id: an object ``identity/<id>`` there, and a row in PostgreSQL. Several clusters may share a store,
and who copies a store copies its id.
"""

from __future__ import annotations

import logging
from uuid import UUID, uuid4

from ...postgres.pool import PostgresPool
from ..setup_problems import InvalidStorage, without_causes
from .objects import ByteRange, ObjectNotFound, ObjectStore, ObjectStoreError

logger = logging.getLogger(__name__)

_CONTENT = b"stele"


async def check_inline(pool: PostgresPool) -> None:
    """Check that the cluster keeps its records in PostgreSQL.

    Raises:
        InvalidStorage: it has an object store.
        PostgresUnavailable: the database cannot be reached.
    """
    if await _known_id(pool) is not None:
        raise InvalidStorage(
            "this cluster keeps records in an object store: set STELE_OBJECT_STORE to that of the other brokers"
        )


async def check_identity(pool: PostgresPool, store: ObjectStore, url: str) -> None:
    """Check that the store is the one of the cluster; log an outage.

    Raises:
        InvalidStorage: it is another one.
        PostgresUnavailable: the database cannot be reached.
    """
    try:
        known = await _known_id(pool) or await _claimed_id(pool, store)
        await store.get_ranges(_key_of(known), [ByteRange(0, len(_CONTENT))])
    except ObjectNotFound as error:
        raise InvalidStorage(
            f"the object store {url} is not the one with the records of this cluster: set STELE_OBJECT_STORE to that"
            f" of the other brokers. If the records were moved here, copy the object {error.key} as well"
        ) from error
    except ObjectStoreError as error:
        logger.error(
            "whether the object store %s is that of the cluster cannot be checked: %s",
            url,
            without_causes(str(error)),
        )


def _key_of(store_id: UUID) -> str:
    return f"identity/{store_id}"


async def _known_id(pool: PostgresPool) -> UUID | None:
    row = await pool.run(lambda connection: connection.execute("SELECT id FROM object_store").fetchone())
    return None if row is None else row[0]


async def _claimed_id(pool: PostgresPool, store: ObjectStore) -> UUID:
    """Return the id of this store, or of that of a broker that was faster."""
    own = uuid4()
    # First, or a start that ends in between would leave a cluster that refuses every store.
    await store.put(_key_of(own), _CONTENT)
    claim = "INSERT INTO object_store (id) VALUES (%s) ON CONFLICT DO NOTHING"
    await pool.run(lambda connection: connection.execute(claim, (own,)))
    known = await _known_id(pool)
    if known is None:
        raise InvalidStorage("the table object_store in PostgreSQL was emptied meanwhile: start again")
    if known != own:
        await store.delete([_key_of(own)])
    return known
