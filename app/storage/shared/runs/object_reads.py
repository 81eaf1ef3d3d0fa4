"""Reads of objects that are repeated while the store fails.

A store throttles, restarts, renews credentials and breaks connections. Objects never change, so a read can be
repeated at any time. Only a missing object is an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from ...engine import SharedStorageCounts
from ..meta import ObjectRef, StoreKind
from ..store.backoff import Backoff
from ..store.object_store import ByteRange, ObjectNotFound, ObjectStore, ObjectStoreError

logger = logging.getLogger(__name__)

# A store that is slower than this counts as one that does not answer.
BYTES_PER_MS_MIN = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Retries wait ``retry_ms``, then up to 16 times that.

    One try may take ``try_timeout_ms``, and all tries ``timeout_ms``, both longer for many bytes. A caller that reads
    several objects and has some of them waits for ``answer_after_ms`` in all, and then goes without the others; one
    that has none waits for ``timeout_ms``. ``ahead`` objects are read at a time for one caller, fewer once they have
    ``ahead_bytes``.
    """

    retry_ms: int = 50
    try_timeout_ms: int = 5_000
    timeout_ms: int = 20_000
    answer_after_ms: int = 500
    ahead: int = 16
    ahead_bytes: int = 32 << 20


class ObjectReads:
    """Reads parts of objects from their store, and keeps ``counts``."""

    def __init__(
        self, stores: Mapping[StoreKind, ObjectStore], options: ReadOptions, counts: SharedStorageCounts
    ) -> None:
        self._stores = stores
        self._options = options
        self._counts = counts

    async def load(self, ref: ObjectRef, start: int, end: int) -> bytes:
        """Return the bytes of an object from ``start`` to before ``end``.

        Raises:
            ObjectNotFound: there is no such object.
            ObjectStoreError: the store has failed for too long.
        """
        # Another broker may have a store that this one lacks, which no retry mends.
        store = self._stores[ref.store]
        loop, options = asyncio.get_running_loop(), self._options
        transfer_ms = (end - start) / BYTES_PER_MS_MIN
        deadline_s = loop.time() + (options.timeout_ms + transfer_ms) / 1000
        backoff = Backoff(options.retry_ms)
        while True:
            try_s = min((options.try_timeout_ms + transfer_ms) / 1000, deadline_s - loop.time())
            try:
                async with asyncio.timeout(try_s):
                    (data,) = await store.get_ranges(ref.key, [ByteRange(start, end)])
                return data
            except ObjectNotFound:
                raise
            except (ObjectStoreError, TimeoutError) as error:
                failure = error
            if loop.time() + backoff.next_ms / 1000 >= deadline_s:
                reason = str(failure) or "no answer in time"
                raise ObjectStoreError(f"object {ref.key} could not be read: {reason}") from failure
            self._counts.read_retries += 1
            logger.debug("object %s is read again: %s", ref.key, failure)
            await backoff.wait()
