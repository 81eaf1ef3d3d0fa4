"""The shared engine over PostgreSQL and the object store that the settings name.

The data directory holds no records. It is locked all the same, because the catalog and the groups of the
broker are in it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from ...clock import Clock
from ...errors import StorageUnavailable
from ...postgres.connector import PostgresUnavailable
from ...postgres.migrations import SchemaMismatch
from ...postgres.pool import PostgresPool
from ..disk.files import Files
from ..engine import EngineStart
from ..logs.data_dir import DataDir
from ..setup_problems import InvalidStorage, postgres_advice, store_problem
from .engine import SharedEngine
from .meta import StoreKind
from .options import SharedOptions
from .postgres.inline_objects import PostgresInlineStore
from .postgres.meta import PostgresMeta
from .store.check import check_store
from .store.object_store import ObjectStore, ObjectStoreError
from .store.urls import open_object_store
from .store_identity import IdentifiedStore, check_inline

logger = logging.getLogger(__name__)

# The value of the setting that means PostgreSQL itself.
INLINE = "inline"
# PostgreSQL takes small objects better than large ones, and there is no price per request.
_INLINE_LINGER_MS = 5
_INLINE_OBJECT_BYTES = 1 << 20
_LINGER_MS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStorage:
    """Settings of shared storage; ``linger_ms`` None means one that suits the store."""

    postgres_url: str
    object_store: str
    linger_ms: int | None


class _Stores(dict[StoreKind, ObjectStore]):
    """The stores of this broker.

    Asking for another one is an error of a store, which clients repeat.
    """

    def __missing__(self, kind: StoreKind) -> ObjectStore:
        raise ObjectStoreError(
            "the records are in an object store that this broker does not know: set STELE_OBJECT_STORE to that of the"
            " other brokers, and start it again"
        )


class PostgresEngine(SharedEngine):
    """A shared engine that owns its connections.

    Raises:
        ValueError: the URL of PostgreSQL or of the object store is invalid; the text says why.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        *,
        storage: SharedStorage,
        incarnation: UUID,
        clock: Clock,
        options: SharedOptions,
    ) -> None:
        self._data_dir = DataDir(files, path)
        self._store: IdentifiedStore | None = None
        self._store_url = storage.object_store
        self._own_incarnation = incarnation
        # Surveys of the cluster use it, too.
        self.pool = self._pool = PostgresPool(storage.postgres_url, incarnation=incarnation)
        stores = _Stores({StoreKind.INLINE: PostgresInlineStore(self._pool)})
        linger_ms, object_bytes = _LINGER_MS, options.object_bytes
        if storage.object_store == INLINE:
            linger_ms, object_bytes = _INLINE_LINGER_MS, min(object_bytes, _INLINE_OBJECT_BYTES)
        else:
            opened = open_object_store(storage.object_store)
            store = self._store = IdentifiedStore(opened, self._pool, storage.object_store)
            stores[StoreKind.OBJECTS] = store
            if not store.is_durable:
                logger.warning(
                    "the object store %s does not sync: a loss of power can take acknowledged records",
                    storage.object_store,
                )
        super().__init__(
            PostgresMeta(self._pool),
            stores,
            incarnation=incarnation,
            clock=clock,
            options=replace(
                options,
                linger_ms=linger_ms if storage.linger_ms is None else storage.linger_ms,
                object_bytes=object_bytes,
            ),
        )

    async def open(self) -> EngineStart:
        self._data_dir.take()
        try:
            await self._pool.open()
        except PostgresUnavailable as error:
            advice = postgres_advice(str(error))
            text = f"{error}; {advice.text}"
            if advice.is_mistake:
                raise InvalidStorage(f"PostgreSQL cannot be used: {text}") from error
            raise StorageUnavailable("the start", text) from error
        except SchemaMismatch as error:
            raise StorageUnavailable("the start", str(error)) from error
        await self._warn_of_losses()
        start = await super().open()
        try:
            await self._check_store()
        except InvalidStorage:
            await self.close()
            raise
        except PostgresUnavailable as error:
            await self.close()
            raise StorageUnavailable("the start", str(error)) from error
        return start

    async def _warn_of_losses(self) -> None:
        """Log what a failure of PostgreSQL can take."""
        query = "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)"
        names = ["fsync", "synchronous_commit", "synchronous_standby_names"]
        try:
            rows = await self._pool.run(lambda connection: connection.execute(query, (names,)).fetchall())
        except PostgresUnavailable as error:
            raise StorageUnavailable("the start", str(error)) from error
        settings: dict[str, str] = dict(rows)
        off = [name for name in ("fsync", "synchronous_commit") if settings.get(name) == "off"]
        if off:
            logger.warning(
                "acknowledged records can be lost when PostgreSQL crashes: %s is off", " and ".join(off)
            )
        elif not settings.get("synchronous_standby_names") or settings.get("synchronous_commit") == "local":
            logger.warning(
                "PostgreSQL has no synchronous standby: acknowledged records are synced, not replicated, and a failover"
                " loses the newest. Set synchronous_standby_names"
            )

    async def _check_store(self) -> None:
        if self._store is None:
            await check_inline(self._pool)
            return
        checked = await check_store(self._store.inner, self._store_url, self._own_incarnation)
        if checked.written is not None:
            self.abandon(checked.written)
        if checked.is_usable:
            try:
                await self._store.identify()
            except ObjectStoreError as error:
                # Its first upload tries again.
                logger.error("%s", store_problem(self._store_url, str(error)).text)

    async def close(self) -> None:
        await super().close()
        await self._pool.close()
        self._data_dir.release(clean=True)
