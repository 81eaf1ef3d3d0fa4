"""Commits, merges, deletions and reads at the same time leave no gap and no object that is missing."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from uuid import UUID

import pytest

from app.storage.shared.meta import MergedObject, MergePlan, RunsWanted
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.shared_meta import FOREVER_S, UPLOADERS, batch, written_object

_COMMITS = 150


@pytest.mark.long
async def test_readers_see_no_gap_while_runs_are_merged_and_deleted(
    server: PostgresServer, schema: str, meta: PostgresMeta
) -> None:
    random = Random(1)
    (log,) = await meta.create_logs(UUID(int=1), 1)
    log_id = log.log_id
    keys = (f"w/{number}" for number in count())
    is_over = False
    merges: dict[bool, int] = {True: 0, False: 0}

    async def commit() -> None:
        nonlocal is_over
        for _ in range(_COMMITS):
            await meta.commit_objects([written_object(next(keys), [(log_id, [batch(random.randint(1, 3))])])])
        is_over = True

    async def merge() -> None:
        while not is_over:
            # A claim keeps nobody away here, so the two mergers get in each other's way.
            plan = await meta.plan_merge(claim_s=0, min_bytes=1, min_age_s=0, max_bytes=1500)
            if plan is not None:
                merges[await meta.commit_merge(plan, _merged(next(keys), plan))] += 1

    async def delete() -> None:
        while not is_over:
            row = (await meta.log_rows([log_id]))[log_id]
            start = random.randint(row.log_start, (row.log_start + row.next_offset) // 2)
            await meta.delete_records(log_id, start)
            await meta.retain(log_id, retention_s=None, retention_bytes=3000)
            await meta.sweep()

    async def read() -> None:
        end = 0
        while not is_over:
            row = (await meta.log_rows([log_id]))[log_id]
            assert row.next_offset >= end, "the end of a log falls"
            end = row.next_offset
            found = (await meta.runs([RunsWanted(log_id, row.log_start, 1 << 20)]))[log_id]
            if found.runs:
                assert found.runs[0].base_offset <= row.log_start
                for before, after in zip(found.runs, found.runs[1:], strict=False):
                    assert after.base_offset == before.last_offset + 1, "a gap"
                assert found.runs[-1].last_offset == found.log.next_offset - 1
            else:
                # What the reader asked for was deleted meanwhile, or there is nothing.
                assert found.log.log_start > row.log_start or end == row.log_start

    await asyncio.gather(commit(), merge(), merge(), delete(), read())
    assert merges[True]
    assert merges[False]
    # The counters of the log are those of its rows.
    ((size_bytes, unmerged_bytes),) = server.run(
        f"SELECT coalesce(sum(len), 0), coalesce(sum(len) FILTER (WHERE idx IS NULL), 0) FROM {schema}.batches"
    )
    row = (await meta.log_rows([log_id]))[log_id]
    assert (row.size_bytes, row.unmerged_bytes) == (size_bytes, unmerged_bytes)
    # Nothing leaks, and nothing that a run names is dead.
    while await meta.sweep():
        continue
    wrong = server.run(
        f"SELECT o.key, o.state FROM {schema}.objects o WHERE (o.state = 'c') <> "
        f"EXISTS (SELECT FROM {schema}.batches b WHERE b.object_id = o.object_id)"
    )
    assert wrong == []
    assert await meta.dead_objects(0)
    assert await meta.dead_objects(FOREVER_S) == []


def _merged(key: str, plan: MergePlan) -> MergedObject:
    length = sum(run.length for run in plan.runs)
    return MergedObject(
        key=key,
        uploader=UPLOADERS[0],
        size=length,
        position=0,
        length=length,
        max_timestamp=0,
        sparse_index=b"",
        inline=bytes(length),
    )
