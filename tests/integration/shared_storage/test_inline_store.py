"""The store ``inline`` does what every object store does."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.postgres.pool import PostgresPool
from app.storage.shared.postgres.inline_objects import PostgresInlineStore
from app.storage.shared.postgres.meta import PostgresMeta
from app.storage.shared.store.object_store import ByteRange, ObjectStore
from tests.support.object_store_contract import LongListingContract, ObjectStoreContract
from tests.support.shared_meta import batch, written_object


class TestInline(ObjectStoreContract, LongListingContract):
    @pytest.fixture
    def store(self, pool: PostgresPool) -> ObjectStore:
        return PostgresInlineStore(pool)


async def test_a_commit_stores_the_bytes_of_its_inline_objects(
    pool: PostgresPool, meta: PostgresMeta
) -> None:
    (log,) = await meta.create_logs(UUID(int=1), 1)
    written = written_object("w/1", [(log.log_id, [batch(1)])], is_inline=True)
    await meta.commit_objects([written])
    assert written.inline is not None
    store = PostgresInlineStore(pool)
    assert await store.get_ranges("w/1", [ByteRange(0, written.size)]) == [bytes(written.inline)]
