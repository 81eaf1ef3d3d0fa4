"""Where a client with several brokers in its URL begins, how it moves on, and when it tries again."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice

from stele.config import Endpoint
from stele.transport.base import Endpoints, backoff


def test_clients_with_one_url_spread_over_its_brokers() -> None:
    endpoint = Endpoint.parse("stele://a:1,b:2,c:3")
    begun = Counter(Endpoints(endpoint).current.host for _ in range(600))
    # A fair choice is outside of these bounds once in 10^11 runs.
    assert all(120 < begun[host] < 280 for host in "abc"), begun


def test_a_pause_is_due_when_every_broker_has_failed() -> None:
    for _ in range(20):
        endpoints = Endpoints(Endpoint.parse("stele://a:1,b:2,c:3"))
        tried = [endpoints.current]
        while not endpoints.move_on(endpoints.current):
            tried.append(endpoints.current)
        assert sorted(one.host for one in tried) == ["a", "b", "c"]
        assert endpoints.current is tried[0]


def test_one_failure_seen_by_several_callers_moves_on_once() -> None:
    endpoints = Endpoints(Endpoint.parse("stele://a:1,b:2,c:3"))
    failed = endpoints.current
    endpoints.move_on(failed)
    second = endpoints.current
    endpoints.move_on(failed)
    assert endpoints.current is second
    assert second is not failed


def test_a_single_broker_always_needs_the_pause() -> None:
    endpoints = Endpoints(Endpoint.parse("http://a:1"))
    assert endpoints.move_on(endpoints.current)


def test_programs_with_one_seed_do_not_retry_at_the_same_moments() -> None:
    def pauses() -> list[float]:
        random.seed(1)
        return list(islice(backoff(), 5))

    assert pauses() != pauses()
