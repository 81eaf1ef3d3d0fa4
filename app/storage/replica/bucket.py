"""Requests to the bucket, which are repeated until they succeed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

from ..setup_problems import brief_reason
from ..shared.store.backoff import Backoff
from ..shared.store.object_keys import ObjectKeys
from ..shared.store.object_store import ConditionalStore, ObjectNotFound, ObjectStoreError
from .options import ReplicaOptions
from .status import ReplicaStatus

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# Kinds of objects: new bytes of many partitions, sealed segments, chunks of stores.
DELTA = "d"
SEALED = "s"
CHUNKS = "p"
KINDS = (DELTA, SEALED, CHUNKS)


class Bucket:
    """The store of one replica; what fails shows in ``status``."""

    def __init__(
        self, store: ConditionalStore, *, incarnation: UUID, options: ReplicaOptions, status: ReplicaStatus
    ) -> None:
        self.store = store
        self._options = options
        self._status = status
        self._keys = {kind: ObjectKeys(kind, incarnation) for kind in KINDS}
        self._failing = 0

    async def put(self, kind: str, data: bytes) -> str:
        """Store an object; return its key."""
        key = self._keys[kind].next(len(data))
        await self.persist(f"writing {key}", lambda: self.store.put(key, data))
        self._status.objects += 1
        self._status.uploaded_bytes += len(data)
        return key

    async def persist(self, what: str, call: Callable[[], Awaitable[_T]]) -> _T:
        """Await ``call`` again and again until it succeeds.

        Raises:
            ObjectNotFound: that is an answer.
        """
        backoff, is_failing = Backoff(self._options.retry_ms), False
        try:
            while True:
                try:
                    return await self.once(what, call)
                except ObjectNotFound:
                    raise
                except ObjectStoreError as error:
                    problem = str(error)
                self._status.problem = problem
                if not is_failing:
                    is_failing = True
                    self._failing += 1
                    if self._failing == 1:
                        logger.warning("the bucket of the replica fails, and is tried again: %s", problem)
                await backoff.wait()
        finally:
            if is_failing:
                self._failing -= 1
                if not self._failing:
                    self._status.problem = None

    async def once(self, what: str, call: Callable[[], Awaitable[_T]]) -> _T:
        """Await ``call``, which may fail.

        Raises:
            ObjectNotFound: that is an answer.
            ObjectStoreError: it failed, or took too long.
        """
        try:
            async with asyncio.timeout(self._options.request_timeout_ms / 1000):
                return await call()
        except ObjectNotFound:
            raise
        except (ObjectStoreError, TimeoutError) as error:
            self._status.failed_requests += 1
            reason = brief_reason(str(error)) or "no answer in time"
            raise ObjectStoreError(f"{what}: {reason}") from error

    @property
    def is_failing(self) -> bool:
        """Whether a request is being repeated."""
        return self._failing > 0
