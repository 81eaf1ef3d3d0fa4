"""Names of producers on shared storage: kept by their last use, which costs no write per commit."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from app.cluster.postgres.catalog import PostgresCatalog
from app.cluster.postgres.database import PostgresDatabase
from app.postgres.connector import Connector
from app.postgres.session import PostgresSession
from app.storage.shared.meta import LogRow
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.shared_meta import batch, written_object

TOPIC = UUID(int=1)
DAY_S = 24 * 3600.0
KEPT_MS = 30 * 24 * 3_600_000


@pytest.fixture
def catalog(server: PostgresServer, schema: str) -> Iterator[PostgresCatalog]:
    session = PostgresSession(Connector(server.dsn, schema=schema))
    session.migrate()
    yield PostgresCatalog(PostgresDatabase(session))
    session.close()


class Days:
    """Lets time pass: everything in the database becomes older."""

    def __init__(
        self, server: PostgresServer, schema: str, catalog: PostgresCatalog, meta: PostgresMeta
    ) -> None:
        self._server = server
        self._schema = schema
        self._catalog = catalog
        self._meta = meta

    async def passed(self, days: int) -> list[int]:
        """Let days pass, then do what every broker does now and then; return the ids of forgotten names."""
        for change in (
            f"named_producers SET begun_at_ms = begun_at_ms - {days}::bigint * 86400000",
            f"producer_state SET last_at = last_at - interval '{days} days'",
            f"named_producer_uses SET used_at = used_at - interval '{days} days'",
        ):
            self._server.run(f"UPDATE {self._schema}.{change}")
        await self._meta.expire_producers(DAY_S)
        # Partitions of this broker know nothing, and its clock is not asked.
        return self._catalog.forget_named_producers(now_ms=0, kept_ms=KEPT_MS, last_uses={})


@pytest.fixture
def days(server: PostgresServer, schema: str, catalog: PostgresCatalog, meta: PostgresMeta) -> Days:
    return Days(server, schema, catalog, meta)


async def write(meta: PostgresMeta, log: LogRow, number: int, *, epoch: int = 0) -> Exception | None:
    header = batch(1, producer_id=7, producer_epoch=epoch, base_sequence=number)
    answer = await meta.commit_objects([written_object(f"w/{epoch}/{number}", [(log.log_id, [header])])])
    return answer[0][0].places[0].error


async def test_a_connector_that_has_run_for_longer_is_fenced_by_its_next_run(
    catalog: PostgresCatalog, meta: PostgresMeta, days: Days
) -> None:
    (log,) = await meta.create_logs(TOPIC, 1)
    catalog.begin_producer_version("cdc", 1, fresh_id=7, now_ms=0)
    for number in range(5):
        assert await write(meta, log, number) is None
        assert await days.passed(8) == []
    second = catalog.begin_producer_version("cdc", 2, fresh_id=8, now_ms=0)
    assert (second.producer_id, second.epoch) == (7, 1)
    assert await write(meta, log, 5) is not None
    assert await write(meta, log, 0, epoch=1) is None


async def test_a_name_is_forgotten_30_days_after_its_last_batch_or_the_beginning_of_its_version(
    catalog: PostgresCatalog, meta: PostgresMeta, days: Days, server: PostgresServer, schema: str
) -> None:
    (log,) = await meta.create_logs(TOPIC, 1)
    catalog.begin_producer_version("job", 1, fresh_id=7, now_ms=0)
    assert await days.passed(20) == []
    assert await write(meta, log, 0) is None
    assert await days.passed(29) == []
    assert catalog.named_epochs() == {7: 0}
    # As a use, the beginning of a version counts, too.
    assert catalog.begin_producer_version("job", 2, fresh_id=9, now_ms=0).producer_id == 7
    assert await days.passed(29) == []
    assert await days.passed(2) == [7]
    assert catalog.named_epochs() == {}
    assert server.run(f"SELECT count(*) FROM {schema}.named_producer_uses") == [(0,)]
    assert catalog.begin_producer_version("job", 1, fresh_id=10, now_ms=0).producer_id == 10


async def test_batches_in_a_topic_that_was_deleted_count_as_uses(
    catalog: PostgresCatalog, meta: PostgresMeta, days: Days
) -> None:
    (log,) = await meta.create_logs(TOPIC, 1)
    catalog.begin_producer_version("cdc", 1, fresh_id=7, now_ms=0)
    assert await days.passed(29) == []
    assert await write(meta, log, 0) is None
    await meta.delete_logs(TOPIC)
    while await meta.purge():
        pass
    assert await days.passed(29) == []
    assert await days.passed(2) == [7]


async def test_producers_without_a_name_leave_nothing(
    catalog: PostgresCatalog, meta: PostgresMeta, days: Days, server: PostgresServer, schema: str
) -> None:
    (log,) = await meta.create_logs(TOPIC, 1)
    assert await write(meta, log, 0) is None
    assert await days.passed(2) == []
    assert await meta.producers(log.log_id) == []
    assert server.run(f"SELECT count(*) FROM {schema}.named_producer_uses") == [(0,)]


async def test_the_age_of_a_version_is_told_by_the_clock_of_the_caller(
    catalog: PostgresCatalog, days: Days
) -> None:
    """Whose clock may be years ahead of, or behind, that of the broker that began it."""
    catalog.begin_producer_version("job", 1, fresh_id=7, now_ms=0)
    await days.passed(3)
    years_ahead_ms = 4_000_000_000_000
    resumed = catalog.begin_producer_version("job", 1, fresh_id=8, now_ms=years_ahead_ms)
    assert resumed.is_resumed
    age_ms = years_ahead_ms - resumed.begun_at_ms
    assert 3 * DAY_S * 1000 <= age_ms < 4 * DAY_S * 1000
