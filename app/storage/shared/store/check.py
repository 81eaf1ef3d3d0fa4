"""Check that the broker can list, write, read and delete in its object store.

It is checked at the start.

The object of the check has a key of this incarnation, so garbage collection finds it if the broker dies meanwhile.
"""

from __future__ import annotations

import logging
from typing import NamedTuple
from uuid import UUID

from ...setup_problems import InvalidStorage, store_problem
from .object_keys import WRITTEN, prefix_of
from .object_store import ByteRange, ObjectStore, ObjectStoreError

logger = logging.getLogger(__name__)

_BYTES = b"stele"


class StoreCheck(NamedTuple):
    """The result of a check.

    ``written`` is the key of the object that was perhaps written. It was deleted if the store is usable, but a request
    that was sent again may reach the store once more after that.
    """

    is_usable: bool
    written: str | None = None


async def check_store(store: ObjectStore, url: str, incarnation: UUID) -> StoreCheck:
    """Use the store once; log an outage.

    Raises:
        InvalidStorage: the store refuses it, and will go on doing so.
    """
    prefix = prefix_of(WRITTEN, incarnation)
    key = f"{prefix}check.{len(_BYTES)}"
    written = None
    try:
        await store.list_page(prefix)
        written = key
        await store.put(key, _BYTES)
        (read,) = await store.get_ranges(key, [ByteRange(0, len(_BYTES))])
        if read != _BYTES:
            raise InvalidStorage(f"the object store {url} returned other bytes than were written")
        await store.delete([key])
    except ObjectStoreError as error:
        problem = store_problem(url, str(error))
        if problem.is_mistake:
            raise InvalidStorage(problem.text) from error
        logger.error("%s; the broker starts, and writes fail until then", problem.text)
        return StoreCheck(is_usable=False, written=written)
    return StoreCheck(is_usable=True, written=written)
