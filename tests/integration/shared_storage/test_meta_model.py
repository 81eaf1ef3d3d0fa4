"""PostgreSQL and the model of the tests answer every call alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from app.storage.shared.meta import Meta
from app.storage.shared.postgres_meta import PostgresMeta
from tests.support.model_meta import ModelMeta
from tests.support.shared_meta import RandomCalls, outcome, told


def _now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("seed", range(3))
async def test_random_calls_have_the_answers_of_the_model(meta: PostgresMeta, seed: int) -> None:
    model = ModelMeta(_now_ms)
    made = 0

    async def both(call: Callable[[Meta], Coroutine[Any, Any, Any]]) -> Any:
        nonlocal made
        made += 1
        answer = await outcome(call(meta))
        expected = await outcome(call(model))
        assert told(answer) == told(expected), f"seed {seed}, call {made}"
        return answer

    calls = RandomCalls(Random(seed), both)
    for _ in range(400):
        await calls.step()
    for row in model.live_logs:
        assert row.log_start <= row.next_offset
