"""Commits over connections that are lost and backends that are killed: none is lost, none happens twice."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack, suppress
from random import Random
from uuid import UUID

import pytest

from app.cluster.postgres.catalog import PostgresCatalog
from app.cluster.postgres.database import PostgresDatabase
from app.errors import ProducerFenced, UnexpectedEnd
from app.postgres.connector import Connection, Connector
from app.postgres.pool import PostgresPool
from app.postgres.session import PostgresSession
from app.storage.shared.meta import (
    CommitUnknown,
    ExpectedEnd,
    LogRow,
    MetaUnavailable,
    ObjectFenced,
    ObjectWrite,
    RunPlace,
    RunsWanted,
)
from app.storage.shared.postgres.meta import PostgresMeta
from app.storage.topic_partition import TopicPartition
from load.postgres_server import PostgresServer
from tests.support.postgres_proxy import AtCommit, PostgresProxy
from tests.support.shared_meta import UPLOADERS, batch, written_object

TOPIC = UUID(int=1)


async def _log(meta: PostgresMeta) -> LogRow:
    return (await meta.create_logs(TOPIC, 1))[0]


def _proxied(server: PostgresServer, proxy: PostgresProxy, schema: str) -> PostgresPool:
    return PostgresPool(server.dsn.replace(str(server.port), str(proxy.port)), schema=schema)


async def _lose_commit(
    server: PostgresServer, schema: str, fault: AtCommit, objects: list[ObjectWrite]
) -> CommitUnknown:
    """Commit ``objects`` through a proxy with ``fault``."""
    with PostgresProxy(server.port) as proxy:
        pool = _proxied(server, proxy, schema)
        try:
            await pool.run(lambda connection: connection.execute("SELECT 1"))
            proxy.at_commit = fault
            with pytest.raises(CommitUnknown) as unknown:
                await PostgresMeta(pool).commit_objects(objects)
        finally:
            await pool.close()
    return unknown.value


@pytest.mark.parametrize("fault", [AtCommit.LOSE_ANSWER, AtCommit.LOSE_REQUEST, AtCommit.HOLD])
async def test_a_commit_whose_answer_is_lost_happens_once(
    server: PostgresServer, schema: str, meta: PostgresMeta, fault: AtCommit
) -> None:
    log = await _log(meta)
    objects = [
        written_object("w/1", [(log.log_id, [batch(3)])], is_inline=True),
        written_object("w/2", [(log.log_id, [batch(2), batch(1)])]),
    ]
    unknown = await _lose_commit(server, schema, fault, objects)
    answer = await meta.commit_objects(objects, computed=unknown.answer)
    assert [[place.base_offset for run in of for place in run.places] for of in answer] == [[0], [3, 5]]
    # Once more, as after a second lost answer.
    assert await meta.commit_objects(objects, computed=answer) is answer
    assert (await meta.log_rows([log.log_id]))[log.log_id].next_offset == 6


def _at_end(key: str, log: LogRow, offset: int) -> ObjectWrite:
    """Return an object with one batch that expects its log to end at ``offset``."""
    expected = {0: ExpectedEnd(offset, TopicPartition("orders", 0))}
    return written_object(key, [(log.log_id, [batch(1)])], expected_ends=[expected])


async def test_of_commits_at_once_one_gets_the_end_that_all_expect(meta: PostgresMeta) -> None:
    log = await _log(meta)
    for end in range(5):
        answers = await asyncio.gather(
            *(meta.commit_objects([_at_end(f"w/{end}/{number}", log, end)]) for number in range(8))
        )
        places = [answer[0][0].places[0] for answer in answers]
        assert [place.base_offset for place in places if place.error is None] == [end]
        errors = [place.error for place in places if place.error is not None]
        assert [error.log_end_offset for error in errors if isinstance(error, UnexpectedEnd)] == [end + 1] * 7


@pytest.mark.parametrize("fault", [AtCommit.LOSE_ANSWER, AtCommit.LOSE_REQUEST])
async def test_a_conditional_commit_that_is_repeated_is_decided_by_the_end_when_it_happened(
    server: PostgresServer, schema: str, meta: PostgresMeta, fault: AtCommit
) -> None:
    """Another broker has moved the end before it is repeated."""
    log = await _log(meta)
    objects = [_at_end("w/1", log, 0)]
    unknown = await _lose_commit(server, schema, fault, objects)
    is_committed = fault is AtCommit.LOSE_ANSWER
    other = await meta.commit_objects([written_object("w/2", [(log.log_id, [batch(2)])])])
    assert other[0][0].places[0].base_offset == int(is_committed)
    place = (await meta.commit_objects(objects, computed=unknown.answer))[0][0].places[0]
    if is_committed:
        assert place.base_offset == 0
    else:
        assert isinstance(place.error, UnexpectedEnd)
        assert (place.error.expected, place.error.log_end_offset) == (0, 2)


async def test_batches_of_an_earlier_version_of_a_named_producer_are_refused_wherever_they_are_late(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    """Another broker has begun the new version, and the log has not seen a batch of it."""
    session = PostgresSession(Connector(server.dsn, schema=schema))
    try:
        catalog = PostgresCatalog(PostgresDatabase(session))
        log = await _log(meta)
        old = catalog.begin_producer_version("cdc", 1, fresh_id=7, now_ms=0)
        first = batch(1, producer_id=7, producer_epoch=old.epoch, base_sequence=0)
        await meta.commit_objects([written_object("w/1", [(log.log_id, [first])])])
        new = catalog.begin_producer_version("cdc", 2, fresh_id=8, now_ms=0)
    finally:
        session.close()
    assert (new.producer_id, new.epoch) == (7, old.epoch + 1)
    late = batch(1, producer_id=7, producer_epoch=old.epoch, base_sequence=1)
    other = batch(1, producer_id=9, producer_epoch=0, base_sequence=0)
    current = batch(1, producer_id=7, producer_epoch=new.epoch, base_sequence=0)
    answer = await meta.commit_objects([written_object("w/2", [(log.log_id, [late, other, current])])])
    places = answer[0][0].places
    assert isinstance(places[0].error, ProducerFenced)
    assert [place.base_offset for place in places[1:]] == [1, 2]


async def test_a_new_version_of_a_named_producer_waits_for_commits_of_the_one_before(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    """So the broker that begins it sees them all, and none comes after."""
    session = PostgresSession(Connector(server.dsn, schema=schema))
    with PostgresProxy(server.port) as proxy:
        pool = _proxied(server, proxy, schema)
        try:
            catalog = PostgresCatalog(PostgresDatabase(session))
            log = await _log(meta)
            catalog.begin_producer_version("cdc", 1, fresh_id=7, now_ms=0)
            await pool.run(lambda connection: connection.execute("SELECT 1"))
            proxy.at_commit = AtCommit.HOLD
            header = batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
            with pytest.raises(CommitUnknown):
                await PostgresMeta(pool).commit_objects([written_object("w/1", [(log.log_id, [header])])])
            begun = asyncio.ensure_future(
                asyncio.to_thread(catalog.begin_producer_version, "cdc", 2, fresh_id=8, now_ms=0)
            )
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not begun.done() and await asyncio.to_thread(server.run, waiting) == [(0,)]:
                continue
            assert not begun.done()
            proxy.release.set()
            assert (await begun).epoch == 1
        finally:
            await pool.close()
            session.close()
    assert (await meta.log_rows([log.log_id]))[log.log_id].next_offset == 1


async def test_a_repeated_commit_waits_for_the_first_one_that_is_still_at_work(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    log = await _log(meta)
    objects = [written_object("w/1", [(log.log_id, [batch(3)])])]
    with PostgresProxy(server.port) as proxy:
        pool = _proxied(server, proxy, schema)
        try:
            await pool.run(lambda connection: connection.execute("SELECT 1"))
            proxy.at_commit = AtCommit.HOLD
            with pytest.raises(CommitUnknown) as unknown:
                await PostgresMeta(pool).commit_objects(objects)
            again = asyncio.ensure_future(meta.commit_objects(objects, computed=unknown.value.answer))
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not again.done() and await asyncio.to_thread(server.run, waiting) == [(0,)]:
                continue
            assert not again.done()
            proxy.release.set()
            assert await again is unknown.value.answer
        finally:
            await pool.close()
    assert (await meta.log_rows([log.log_id]))[log.log_id].next_offset == 3


async def test_a_repeated_commit_counts_as_committed_even_if_its_object_is_dead_already(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    log = await _log(meta)
    objects = [written_object("w/1", [(log.log_id, [batch(3)])])]
    unknown = await _lose_commit(server, schema, AtCommit.LOSE_ANSWER, objects)
    # The server may still be at work.
    await meta.commit_objects(objects, computed=unknown.answer)
    await meta.delete_records(log.log_id, 3)
    await meta.sweep()
    assert [ref.key for ref in await meta.dead_objects(0)] == ["w/1"]
    assert await meta.commit_objects(objects, computed=unknown.answer) is unknown.answer
    assert (await meta.log_rows([log.log_id]))[log.log_id].next_offset == 3


async def test_a_fenced_object_is_refused_with_all_that_would_be_committed_with_it(
    meta: PostgresMeta,
) -> None:
    log = await _log(meta)
    assert await meta.fence(UPLOADERS[0], ["w/2"]) == ["w/2"]
    objects = [written_object(key, [(log.log_id, [batch(1)])]) for key in ("w/1", "w/2")]
    with pytest.raises(ObjectFenced) as refused:
        await meta.commit_objects(objects)
    assert refused.value.keys == ("w/2",)
    assert (await meta.log_rows([log.log_id]))[log.log_id].next_offset == 0
    # Under other keys it may be committed.
    await meta.commit_objects([written_object("w/3", [(log.log_id, [batch(1)])])])


async def test_bytes_that_are_there_again_are_deleted_again(meta: PostgresMeta) -> None:
    log = await _log(meta)
    await meta.commit_objects([written_object(key, [(log.log_id, [batch(1)])]) for key in ("w/1", "w/2")])
    await meta.delete_records(log.log_id, 1)
    await meta.sweep()
    keys = ["w/1", "w/2", "w/3"]
    for _ in range(2):
        # One is dead, one has a run, and one was never committed.
        assert await meta.fence(UPLOADERS[0], keys) == ["w/3"]
        assert {ref.key for ref in await meta.dead_objects(0)} == {"w/1", "w/3"}
        await meta.bytes_deleted(keys)
        assert await meta.dead_objects(0) == []


async def test_a_commit_that_the_server_refuses_did_not_happen(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    log = await _log(meta)
    server.run(f"ALTER TABLE {schema}.batches ADD CHECK (len < 1000)")
    with pytest.raises(MetaUnavailable):
        await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(1, size=2000)])])])
    # The same connection goes on.
    (place,) = (await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(1)])])]))[0]
    assert place.places[0].base_offset == 0


async def test_a_session_that_is_idle_in_a_transaction_gives_its_locks_back(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    log = await _log(meta)
    held, resumed = threading.Event(), threading.Event()

    def pause(connection: Connection) -> None:
        connection.execute("BEGIN")
        connection.execute("SELECT FROM logs FOR UPDATE")
        held.set()
        resumed.wait()

    other = PostgresPool(server.dsn, schema=schema)
    try:
        paused = asyncio.ensure_future(other.run(pause))
        await asyncio.to_thread(held.wait)
        committed = None
        while committed is None:
            # A commit waits for a lock about as long as the session may be idle.
            with suppress(MetaUnavailable):
                committed = await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(1)])])])
        resumed.set()
        await paused
        # Its connection is replaced.
        assert await other.run(lambda connection: connection.execute("SELECT 1").fetchall()) == [(1,)]
    finally:
        resumed.set()
        await other.close()


class _Committer:
    """A broker that commits objects one after another, whatever happens to its connections."""

    def __init__(self, name: str, meta: PostgresMeta, log_ids: list[int], random: Random) -> None:
        self._name = name
        self._meta = meta
        self._log_ids = log_ids
        self._random = random
        self._producer_id = random.getrandbits(32)
        self._sequences: Counter[int] = Counter()
        # Key, log and offsets of each batch that was acknowledged.
        self.acked: list[tuple[str, int, int, int]] = []
        self.unknown = 0
        self.failed = 0

    async def commit(self, number: int) -> None:
        logs = sorted(self._random.sample(self._log_ids, 2))
        runs = [(log_id, [self._batch(log_id)]) for log_id in logs]
        key = f"w/{self._name}/{number}"
        objects = [written_object(key, runs, is_inline=number % 2 == 0)]
        for (run,) in [[run] for run in (await self._settled(objects))[0]]:
            (place,) = run.places
            assert place.error is None
            assert not place.is_duplicate
            assert run.log is not None
            records = next(header.record_count for log_id, (header,) in runs if log_id == run.log.log_id)
            self.acked.append((key, run.log.log_id, place.base_offset, place.base_offset + records - 1))

    def _batch(self, log_id: int):
        records = self._random.randint(1, 3)
        base_sequence = self._sequences[log_id]
        self._sequences[log_id] += records
        return batch(records, producer_id=self._producer_id, producer_epoch=0, base_sequence=base_sequence)

    async def _settled(self, objects: list[ObjectWrite]) -> list[list[RunPlace]]:
        computed = None
        while True:
            try:
                answer = await self._meta.commit_objects(objects, computed=computed)
            except CommitUnknown as unknown:
                self.unknown += 1
                computed = unknown.answer
            except MetaUnavailable:
                self.failed += 1
            else:
                return [list(of_object) for of_object in answer]


@pytest.mark.long
async def test_killed_backends_lose_no_commit_and_repeat_none(server: PostgresServer, schema: str) -> None:
    async with AsyncExitStack() as stack:

        async def opened() -> PostgresMeta:
            pool = PostgresPool(server.dsn, schema=schema, connections_max=2)
            stack.push_async_callback(pool.close)
            await pool.open()
            return PostgresMeta(pool)

        metas = [await opened() for _ in range(3)]
        log_ids = [row.log_id for row in await metas[0].create_logs(TOPIC, 4)]
        committers = [_Committer(f"broker-{at}", meta, log_ids, Random(at)) for at, meta in enumerate(metas)]

        async def work(committer: _Committer) -> None:
            for number in range(60):
                await committer.commit(number)

        working = asyncio.gather(*(work(committer) for committer in committers))
        killed = 0
        while not working.done():
            killed += len(
                await asyncio.to_thread(
                    server.run,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'stele' AND state <> 'idle' AND random() < 0.3",
                )
            )
            await asyncio.sleep(0.005)
        await working
        acked = {entry for committer in committers for entry in committer.acked}
        assert len(acked) == 3 * 60 * 2
        stored: set[tuple[str, int, int, int]] = set()
        # The last kill may have hit a session after its last commit, so the others' connections can be dead.
        reader = await opened()
        for log_id, row in (await reader.log_rows(log_ids)).items():
            offset = 0
            while offset < row.next_offset:
                found = (await reader.runs([RunsWanted(log_id, offset, 10_000)]))[log_id]
                for run in found.runs:
                    assert run.base_offset == offset, "a gap, or offsets that were given twice"
                    offset = run.last_offset + 1
                    stored.add((run.object.key, log_id, run.base_offset, run.last_offset))
    assert stored == acked
    # Kills have hit commits, not idle sessions alone.
    assert killed
    assert sum(committer.failed + committer.unknown for committer in committers)
