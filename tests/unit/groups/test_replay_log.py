"""A log that keeps the newest entry of each key, held against a list that keeps everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.groups.offsets_topic.replay_log import ReplayLog

START = 5 << 40
PUTS = st.lists(st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 9))), max_size=400)


def filled(puts: list[tuple[int, int | None]], history_bytes: int) -> ReplayLog[int, int]:
    log = ReplayLog[int, int](START, history_bytes=history_bytes)
    for number, (key, value) in enumerate(puts):
        assert log.put(key, value, timestamp_ms=number, size=10) == START + number
    return log


@given(PUTS, st.integers(0, 300))
def test_the_newest_value_of_each_key_is_kept_at_its_offset(
    puts: list[tuple[int, int | None]], history_bytes: int
) -> None:
    log = filled(puts, history_bytes)
    entries = list(log.entries_from(0))
    assert [offset for offset, _ in entries] == sorted({offset for offset, _ in entries})
    for offset, entry in entries:
        assert (entry.key, entry.value) == puts[offset - START]
    newest = {key: START + number for number, (key, _) in enumerate(puts)}
    live = {key for key, offset in newest.items() if puts[offset - START][1] is not None}
    assert live <= {entry.key for offset, entry in entries if newest[entry.key] == offset}
    assert {key for key in range(9) if key in log} == live
    assert len(log) == len(live)
    assert all(log.value(key) == puts[newest[key] - START][1] for key in live)


@given(PUTS, st.integers(0, 300))
def test_history_is_bounded_and_the_end_can_always_be_reached(
    puts: list[tuple[int, int | None]], history_bytes: int
) -> None:
    log = filled(puts, history_bytes)
    entries = list(log.entries_from(0))
    assert log.size_bytes == 10 * len(entries)
    # The last entry may be a tombstone, which is history and stays.
    assert 10 * (len(entries) - len(log)) <= max(history_bytes, 10)
    if puts:
        assert entries[-1][0] == log.next_offset - 1


@given(PUTS, st.integers(-3, 403))
def test_a_read_in_the_middle_is_the_end_of_a_read_from_the_start(
    puts: list[tuple[int, int | None]], distance: int
) -> None:
    log = filled(puts, 100)
    whole = list(log.entries_from(0))
    assert list(log.entries_from(START + distance)) == [
        entry for entry in whole if entry[0] >= START + distance
    ]


def test_keys_that_rest_are_found_among_many_commits_of_another() -> None:
    log = ReplayLog[int, int](START, history_bytes=1000)
    rare = 0
    for number in range(50_000):
        if number % 2500 == 0:
            rare += 1
            log.put(-rare, rare, timestamp_ms=number, size=10)
        log.put(1, number, timestamp_ms=number, size=10)
    live = {entry.key: entry.value for _, entry in log.entries_from(START)}
    assert live == {1: 49_999, **{-number: number for number in range(1, rare + 1)}}
    assert log.size_bytes <= 1000 + 10 * len(live)
