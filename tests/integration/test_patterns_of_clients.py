"""Regular expressions of clients over the listeners that take them.

Each is matched only with what its client may see, and one that costs too much is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from stele.wire.kafka.transactions import ListTransactionsRequest

from app import linear_regex
from app.linear_regex import LinearRegex
from app.security.acl import Acl, Operation, ResourceType
from app.security.principal import ANONYMOUS
from tests.integration.test_authorization_matrix import Caller
from tests.support.acls import authorizer_over
from tests.support.listeners import HOST, Listeners, listeners

SEEN, HIDDEN = "seen-1", "hidden-1"


async def over_kafka(caller: Caller, pattern: str) -> list[str] | str:
    answer = await caller.kafka(
        ListTransactionsRequest(state_filters=(), producer_id_filters=(), transactional_id_pattern=pattern)
    )
    if answer.error_code:
        return str(answer.error_code)
    return [one.transactional_id for one in answer.transaction_states]


async def over_http(caller: Caller, pattern: str) -> list[str] | str:
    answer = await caller.http.get("/v1/transactions", params={"pattern": pattern})
    if answer.status_code != 200:
        return str(answer.json()["kafka_code"])
    return [one["transactional_id"] for one in answer.json()["transactions"]]


LISTS = [over_kafka, over_http]


async def caller_of(served: Listeners, authorizer: Any) -> Caller:
    for name in (SEEN, HIDDEN):
        coordinator = served.binary.transactions
        await coordinator.init_producer_id(name, timeout_ms=60_000)
    return Caller(served, authorizer, ANONYMOUS, HOST, served.http)


@pytest.mark.parametrize("listed", LISTS)
async def test_a_pattern_is_matched_only_with_ids_that_the_client_may_see(
    listed: Callable[[Caller, str], Awaitable[list[str] | str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matched: list[str] = []
    walk = LinearRegex._walk

    def note(regex: LinearRegex, text: str, run: Any) -> Any:
        matched.append(text)
        return walk(regex, text, run)

    monkeypatch.setattr(LinearRegex, "_walk", note)
    rule = Acl(
        resource_type=ResourceType.TRANSACTIONAL_ID,
        resource_name=SEEN,
        principal=str(ANONYMOUS),
        operation=Operation.DESCRIBE,
    )
    authorizer = await authorizer_over([rule])
    async with listeners(tmp_path, authorizer=authorizer) as served:
        assert await listed(await caller_of(served, authorizer), ".*-1") == [SEEN]
    assert matched == [SEEN]


@pytest.mark.parametrize(("listed", "code"), [(over_kafka, "128"), (over_http, "42")])
async def test_a_pattern_that_takes_too_long_is_refused(
    listed: Callable[[Caller, str], Awaitable[list[str] | str]],
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_regex, "VISITS_MAX", 200)
    authorizer = await authorizer_over(allows_without_acl=True)
    async with listeners(tmp_path, authorizer=authorizer) as served:
        caller = await caller_of(served, authorizer)
        assert await listed(caller, ".*-1") == [HIDDEN, SEEN]
        assert await listed(caller, "(.?){400}x") == code
