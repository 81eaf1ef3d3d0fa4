"""PostgreSQL and the model of the tests answer every call alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest

from app.postgres.connector import Connection, Connector
from app.postgres.pool import PostgresPool
from app.postgres.session import PostgresSession
from app.storage.shared.meta import Meta
from app.storage.shared.postgres.meta import PostgresMeta
from load.postgres_server import PostgresServer
from tests.support.model_meta import ModelMeta
from tests.support.model_transactions import ModelTransactions
from tests.support.shared_meta import RandomCalls, outcome, told
from tests.support.shared_names import MARKED_MS, ModelNames, Names, PostgresNames
from tests.support.variants import long_but


def _now_ms() -> int:
    return int(time.time() * 1000)


def _history(connection: Connection) -> tuple[int, int]:
    """Return the epoch of the history, and the last log id that was given out or skipped."""
    row = connection.execute(
        "SELECT epoch, (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM logs_log_id_seq) FROM history"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def _begin_history(pool: PostgresPool, connection: Connection) -> tuple[int, int]:
    with connection.transaction():
        pool.connector.history.begin(connection, "a test")
    return _history(connection)


@pytest.mark.parametrize("seed", long_but(range(3), "0"))
async def test_random_calls_have_the_answers_of_the_model(
    meta: PostgresMeta, pool: PostgresPool, server: PostgresServer, schema: str, seed: int
) -> None:
    model = ModelMeta(_now_ms)
    session = PostgresSession(Connector(server.dsn, schema=schema))
    names = PostgresNames(session, pool)
    model_names = ModelNames(model, ModelTransactions(model, {}, is_inline=True, now_ms=lambda: MARKED_MS))
    made = 0

    async def both(call: Callable[[Meta], Coroutine[Any, Any, Any]]) -> Any:
        return await compared(call(meta), call(model))

    async def both_names(call: Callable[[Names], Coroutine[Any, Any, Any]]) -> Any:
        return await compared(call(names), call(model_names))

    async def compared(of_postgres: Coroutine[Any, Any, Any], of_model: Coroutine[Any, Any, Any]) -> Any:
        nonlocal made
        made += 1
        answer = await outcome(of_postgres)
        assert told(answer) == told(await outcome(of_model)), f"seed {seed}, call {made}"
        return answer

    random = Random(seed)
    calls = RandomCalls(random, both, both_names)
    model.go_on_in(*await pool.run(_history))
    for _ in range(400):
        if random.random() < 0.02:
            model.go_on_in(*await pool.run(partial(_begin_history, pool)))
        await calls.step()
    for row in model.live_logs:
        assert row.log_start <= row.next_offset
    session.close()
