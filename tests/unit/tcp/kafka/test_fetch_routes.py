"""A connection recognizes the fetches of the fast path by their bytes, and remembers a bounded number of them."""

from __future__ import annotations

from typing import Any

import pytest

from app.tcp.kafka.fetching import fetch_routes
from app.tcp.kafka.fetching.fetch_routes import PARTITIONS_MAX, REQUEST_BYTES_MAX, ROUTES_MAX, Routes
from app.tcp.kafka.route_learning import SKIPPED_MAX
from app.tcp.kafka.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.kafka_peer import request_frame


def _named(*names: str, client_id: str = "a peer") -> memoryview:
    """Return a fetch of one partition of each of ``names``."""
    partition = FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=1)
    topics = [FetchTopic(topic=name, partitions=[partition]) for name in names]
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)
    return memoryview(bytearray(request_frame(request, 11, client_id=client_id)))[4:]


def test_a_connection_remembers_a_bounded_number_of_requests() -> None:
    routes = Routes()
    for number in range(ROUTES_MAX * 4):
        # Each is learned once and used once.
        matched = routes.match(_named(f"t-{number // 2}"))
        assert matched is not None
        assert matched[0].partitions[0].topic == f"t-{number // 2}"
        assert routes.remembered <= ROUTES_MAX


def test_requests_of_one_length_with_their_numbers_elsewhere_are_told_apart() -> None:
    routes = Routes()
    for _ in range(3):
        for name, client_id in (("ab", "c"), ("a", "bc"), ("abc", "")):
            matched = routes.match(_named(name, client_id=client_id))
            assert matched is not None
            assert (matched[0].partitions[0].topic, matched[0].client_id) == (name, client_id)


def test_a_connection_does_not_remember_long_names() -> None:
    routes = Routes()
    assert routes.match(_named("x" * REQUEST_BYTES_MAX)) is None
    assert routes.remembered == 0


def test_a_client_that_never_repeats_a_request_is_rarely_decoded_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = _count_learned(monkeypatch)
    routes = Routes()
    for number in range(10_000):
        routes.match(_named(f"t-{number}"))
    assert len(learned) < ROUTES_MAX + 60
    usual = [routes.match(_named("a")) for _ in range(SKIPPED_MAX + 2)]
    assert usual[-1] is not None, "it is recognized when it repeats one"


@pytest.mark.parametrize("partitions", [PARTITIONS_MAX, PARTITIONS_MAX + 1])
def test_a_request_of_many_partitions_takes_the_generic_way(partitions: int) -> None:
    matched = Routes().match(_named(*(f"t-{number}" for number in range(partitions))))
    assert (matched is not None) == (partitions == PARTITIONS_MAX)


def test_requests_that_name_their_topics_in_turn_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of several lengths, so that the requests are equally long and their numbers are elsewhere."""
    names = ["a", "bc", "def", "ghij"]
    learned = _count_learned(monkeypatch)
    routes = Routes()
    for number in range(40):
        turn = number % len(names)
        named = names[turn:] + names[:turn]
        matched = routes.match(_named(*named))
        assert matched is not None
        route, layout = matched
        assert [partition.topic for partition in route.partitions] == named
        assert layout.offsets_of(_named(*named)) == (3,) * len(names)
    assert len(learned) == len(names)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "b", "a")])
def test_a_topic_that_is_named_twice_takes_the_generic_way(names: tuple[str, ...]) -> None:
    assert Routes().match(_named(*names)) is None


def _count_learned(monkeypatch: pytest.MonkeyPatch) -> list[memoryview]:
    """Return a list that grows with every request that is decoded for a route."""
    learned: list[memoryview] = []
    learn = fetch_routes._learn

    def counted(frame: memoryview) -> Any:
        learned.append(frame)
        return learn(frame)

    monkeypatch.setattr(fetch_routes, "_learn", counted)
    return learned


def test_a_client_with_another_layout_is_rarely_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = _count_learned(monkeypatch)
    routes = Routes()
    for _ in range(10_000):
        assert routes.match(_named("a", "a")) is None
    assert len(learned) < 60
    usual = [routes.match(_named("a")) for _ in range(SKIPPED_MAX + 2)]
    assert usual[-1] is not None, "it comes back to the usual layout"
