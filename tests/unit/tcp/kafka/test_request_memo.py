"""A connection recognizes fetches that it has decoded before, and remembers a bounded number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from stele.wire.kafka.fetch import FETCH_API, FetchPartition, FetchRequest, FetchTopic
from stele.wire.kafka.headers import read_client_id

from app.tcp.kafka.fetching import request_memo
from app.tcp.kafka.fetching.request_memo import PARTITIONS_MAX, REQUEST_BYTES_MAX, REQUESTS_MAX, RequestMemo
from app.tcp.kafka.route_learning import SKIPPED_MAX
from tests.support.kafka_peer import request_frame


def _named(*names: str, client_id: str = "a peer", offset: int = 3) -> memoryview:
    """Return a fetch of one partition of each of ``names``."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
    topics = [FetchTopic(topic=name, partitions=[partition]) for name in names]
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=topics)
    return memoryview(bytearray(request_frame(request, 11, client_id=client_id)))[4:]


def _frame(version: int, offsets: Sequence[int], session: tuple[int, int], correlation: int) -> memoryview:
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=7,
        max_bytes=1000,
        isolation_level=1,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic="orders",
                topic_id=b"orders-have-this",
                partitions=[
                    FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=50 + number)
                    for number, offset in enumerate(offsets)
                ],
            )
        ],
        rack_id="a rack",
    )
    return memoryview(bytes(request_frame(request, version, correlation=correlation)))[4:]


@pytest.mark.parametrize("version", range(19))
@pytest.mark.parametrize("partitions", [1, 2, PARTITIONS_MAX])
def test_a_known_request_is_read_as_it_is_decoded(version: int, partitions: int) -> None:
    memo = RequestMemo()
    assert memo.read(_frame(version, [0] * partitions, (1, 1), 1)) is None
    for number in range(5):
        offsets = [number << index for index in range(partitions)]
        frame = _frame(version, offsets, (4711, number), number)
        client_id, start = read_client_id(frame, flexible=FETCH_API.is_flexible(version))
        decoded = FETCH_API.read_request(version, frame, start)
        assert memo.read(frame) == (client_id, decoded)


def test_a_connection_remembers_a_bounded_number_of_requests() -> None:
    memo = RequestMemo()
    for number in range(REQUESTS_MAX * 2):
        assert memo.read(_named(f"t-{number}")) is None
        _, request = memo.read(_named(f"t-{number}")) or pytest.fail("it is forgotten")
        assert request.topics[0].topic == f"t-{number}"
        assert memo.remembered <= REQUESTS_MAX


def test_requests_of_one_length_with_their_numbers_elsewhere_are_told_apart() -> None:
    memo = RequestMemo()
    for number in range(3):
        for name, client_id in (("ab", "c"), ("a", "bc"), ("abc", "")):
            known = memo.read(_named(name, client_id=client_id))
            assert (known is None) == (number == 0)
            if known is not None:
                assert (known[1].topics[0].topic, known[0]) == (name, client_id)


def test_a_connection_does_not_remember_long_names() -> None:
    memo = RequestMemo()
    assert memo.read(_named("x" * REQUEST_BYTES_MAX)) is None
    assert memo.remembered == 0


def test_a_client_that_never_repeats_a_request_is_rarely_decoded_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = _count_learned(monkeypatch)
    memo = RequestMemo()
    for number in range(10_000):
        memo.read(_named(f"t-{number}"))
    assert len(learned) < REQUESTS_MAX + 60
    usual = [memo.read(_named("a")) for _ in range(SKIPPED_MAX + 2)]
    assert usual[-1] is not None, "it is recognized when it repeats one"


@pytest.mark.parametrize("partitions", [PARTITIONS_MAX, PARTITIONS_MAX + 1])
def test_a_request_of_many_partitions_is_not_remembered(partitions: int) -> None:
    memo = RequestMemo()
    memo.read(_named(*(f"t-{number}" for number in range(partitions))))
    assert memo.remembered == (partitions == PARTITIONS_MAX)


def test_requests_that_name_their_topics_in_turn_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of several lengths, so that the requests are equally long and their numbers are elsewhere."""
    names = ["a", "bc", "def", "ghij"]
    learned = _count_learned(monkeypatch)
    memo = RequestMemo()
    for number in range(40):
        turn = number % len(names)
        named = names[turn:] + names[:turn]
        known = memo.read(_named(*named, offset=number))
        assert (known is None) == (number < len(names))
        if known is not None:
            assert [topic.topic for topic in known[1].topics] == named
            assert {topic.partitions[0].fetch_offset for topic in known[1].topics} == {number}
    assert len(learned) == len(names)


def _count_learned(monkeypatch: pytest.MonkeyPatch) -> list[memoryview]:
    """Return a list that grows with every request that is decoded to be remembered."""
    learned: list[memoryview] = []
    learn = request_memo._learn

    def counted(frame: memoryview) -> Any:
        learned.append(frame)
        return learn(frame)

    monkeypatch.setattr(request_memo, "_learn", counted)
    return learned


def test_a_client_with_another_layout_is_rarely_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = _count_learned(monkeypatch)
    memo = RequestMemo()
    trailed = memoryview(bytes(_named("a")) + b"\0")
    for _ in range(10_000):
        assert memo.read(trailed) is None
    assert len(learned) < 60
    usual = [memo.read(_named("a")) for _ in range(SKIPPED_MAX + 2)]
    assert usual[-1] is not None, "it comes back to the usual layout"
