"""Surveys of a cluster in PostgreSQL: aggregate queries, whose cost does not depend on the number of clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from ...errors import StorageUnavailable
from ...postgres.connector import Connection, PostgresUnavailable
from ...postgres.pool import PostgresPool
from ..membership import Member, MemberEndpoint
from ..survey import (
    BROKERS_SHOWN_MAX,
    DEAD_SHOWN_MS,
    SUSPECTS_COUNTED_MAX,
    MergeBacklog,
    ObjectTotal,
    Survey,
    SurveyedBroker,
    SweepBacklog,
)

_T = TypeVar("_T")

_STATES = {"c": "committed", "d": "dead", "f": "fenced"}
_STORES = {0: "objects", 1: "inline"}

_BROKERS = """
    SELECT broker_id, incarnation, rack, endpoints, (extract(epoch FROM started_at) * 1000)::bigint,
        greatest(0, extract(epoch FROM now() - seen) * 1000)::bigint, seen > now() - session_timeout,
        (extract(epoch FROM session_timeout) * 1000)::int, report
    FROM brokers WHERE seen > now() - make_interval(secs => %s) ORDER BY broker_id LIMIT %s
"""
_LOGS = """
    SELECT count(*), coalesce(sum(size_bytes), 0)::bigint, count(*) FILTER (WHERE unmerged_bytes > 0),
        coalesce(sum(unmerged_bytes), 0)::bigint,
        (extract(epoch FROM now() - min(unmerged_since) FILTER (WHERE unmerged_bytes > 0)) * 1000)::bigint
    FROM logs WHERE deleted_at IS NULL
"""
# Each part has an index, or ends at its limit.
_SWEEP = """
    SELECT (SELECT count(*) FROM (SELECT FROM suspects LIMIT %s) AS s),
        count(*), coalesce(sum(size), 0)::bigint,
        (SELECT count(*) FROM uploaders u WHERE NOT EXISTS (
            SELECT FROM brokers b WHERE b.incarnation = u.uploader AND b.seen > now() - b.session_timeout
        ))
    FROM objects WHERE state <> 'c' AND has_bytes
"""
_METADATA = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> 'inline_objects'
"""
_OBJECTS = """
    SELECT store, state::text, count(*), coalesce(sum(size), 0)::bigint FROM objects
    WHERE state = 'c' OR has_bytes GROUP BY store, state ORDER BY store, state
"""


class PostgresSurveyor:
    """Implements ``Surveyor``. It uses ``pool``, and does not close it."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    async def survey(self) -> Survey:
        return await self._run(_survey)

    async def objects(self) -> Sequence[ObjectTotal]:
        def work(connection: Connection) -> list[ObjectTotal]:
            return [
                ObjectTotal(store=_STORES[store], state=_STATES[state], count=count, bytes=size_bytes)
                for store, state, count, size_bytes in connection.execute(_OBJECTS).fetchall()
            ]

        return await self._run(work)

    async def _run(self, work: Callable[[Connection], _T]) -> _T:
        try:
            return await self._pool.run(work)
        except PostgresUnavailable as error:
            raise StorageUnavailable("a survey of the cluster", str(error)) from error


def _survey(connection: Connection) -> Survey:
    with connection.pipeline():
        brokers = connection.execute(_BROKERS, (DEAD_SHOWN_MS / 1000, BROKERS_SHOWN_MAX))
        logs = connection.execute(_LOGS)
        sweep = connection.execute(_SWEEP, (SUSPECTS_COUNTED_MAX,))
        metadata = connection.execute(_METADATA)
        (partitions, log_bytes, waiting, waiting_bytes, oldest_ms) = _one(logs)
        suspects, deletable, deletable_bytes, silent = _one(sweep)
        (metadata_bytes,) = _one(metadata)
        return Survey(
            brokers=[_broker(row) for row in brokers.fetchall()],
            partitions=partitions,
            log_bytes=log_bytes,
            merge=MergeBacklog(partitions=waiting, bytes=waiting_bytes, oldest_ms=oldest_ms),
            sweep=SweepBacklog(
                suspects=suspects,
                deletable_objects=deletable,
                deletable_bytes=deletable_bytes,
                silent_uploaders=silent,
            ),
            metadata_bytes=metadata_bytes,
        )


def _one(cursor: Any) -> tuple[Any, ...]:
    row = cursor.fetchone()
    assert row is not None
    return row


def _broker(row: Sequence[Any]) -> SurveyedBroker:
    broker_id, incarnation, rack, endpoints, started_at_ms, age_ms, is_live, session_timeout_ms, report = row
    return SurveyedBroker(
        member=Member(
            broker_id=broker_id,
            incarnation=incarnation,
            rack=rack,
            endpoints={
                listener: MemberEndpoint(host, port)
                for listener, (host, port) in json.loads(endpoints).items()
            },
            started_at_ms=started_at_ms,
            session_timeout_ms=session_timeout_ms,
        ),
        is_live=is_live,
        heartbeat_age_ms=age_ms,
        report=cast("dict[str, Any]", json.loads(report)) if report else {},
    )
