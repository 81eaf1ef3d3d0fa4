"""Transactions: what is committed is read once and in order, what is aborted is never read."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.conformance.driver import Driver, Record, Refused
from tests.conformance.support import MakeTopic, a_name, contents, numbered

pytestmark = [
    pytest.mark.capability("transactions"),
]

BATCH = 20


def write(driver: Driver, topic: str, *ends: Literal["commit", "abort"]) -> list[list[Record]]:
    """Write a transaction for each of ``ends``; return the records of each."""
    transactional_id = a_name("transactional-id")
    written: list[list[Record]] = []
    for number, end in enumerate(ends):
        written.append(numbered(BATCH, start=number * BATCH))
        driver.transact(transactional_id, transactional_id, topic, written[-1], end=end)
    return written


def assert_committed(driver: Driver, topic: str, expected: list[Record]) -> None:
    """The driver reads ``expected`` and nothing else before them."""
    read = driver.fetch(topic, count=len(expected), isolation="committed")
    assert contents(read) == contents(expected)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    driver: Driver, reference: Driver, topic: str
) -> None:
    first, aborted, second, third = write(driver, topic, "commit", "abort", "commit", "commit")
    for reader in (driver, reference):
        assert_committed(reader, topic, [*first, *second, *third])
    everything = driver.fetch(topic, count=4 * BATCH, isolation="uncommitted")
    assert contents(everything) == contents([*first, *aborted, *second, *third])


def test_transactions_of_another_client_are_read_as_committed(
    driver: Driver, reference: Driver, topic: str
) -> None:
    """Several producers at once, some of which abort, and plain records among them."""
    expected: list[Record] = []
    ids = [a_name("transactional-id") for _ in range(3)]
    for number, transactional_id in enumerate(ids):
        records = numbered(BATCH, start=number * 100)
        reference.transact(transactional_id, transactional_id, topic, records, end="none")
        expected += records if number != 1 else []
        plain = numbered(1, start=number * 100 + 99)
        reference.produce(topic, plain)
        expected += plain
    for number, transactional_id in reversed(list(enumerate(ids))):
        end = "abort" if number == 1 else "commit"
        reference.transact(transactional_id, transactional_id, topic, [], begins=False, end=end)
    assert_committed(driver, topic, expected)


def test_offsets_are_committed_with_what_was_made_of_their_records(
    driver: Driver, make_topic: MakeTopic, topic: str, group: str
) -> None:
    source = make_topic()
    driver.produce(source, numbered(BATCH))
    transactional_id = a_name("transactional-id")

    def transform(start: int, count: int, *, end: Literal["commit", "abort"]) -> list[Record]:
        """One round of consuming, transforming and producing."""
        read = driver.fetch(source, offset=start, count=count, isolation="committed")
        made = [Record(value=b"of " + (record.value or b""), key=record.key) for record in read]
        offset = group, source, read[-1].offset + 1
        driver.transact(transactional_id, transactional_id, topic, made, offset=offset, end=end)
        return made

    transform(0, 10, end="abort")
    assert driver.committed(group, source).offset == -1
    made = transform(0, 5, end="commit")
    assert driver.committed(group, source).offset == 5
    transform(5, 10, end="abort")
    assert driver.committed(group, source).offset == 5
    made += transform(5, 15, end="commit")
    assert driver.committed(group, source).offset == BATCH
    assert_committed(driver, topic, made)


def test_a_second_producer_with_the_same_id_fences_the_first(
    driver: Driver, reference: Driver, topic: str
) -> None:
    transactional_id = a_name("transactional-id")
    committed = numbered(BATCH)
    driver.transact("first of " + transactional_id, transactional_id, topic, committed, end="commit")
    driver.transact(
        "first of " + transactional_id, transactional_id, topic, numbered(BATCH, start=100), end="none"
    )
    taken_over = numbered(BATCH, start=200)
    driver.transact("second of " + transactional_id, transactional_id, topic, taken_over, end="commit")

    with pytest.raises(Refused):
        driver.transact(
            "first of " + transactional_id, transactional_id, topic, [], begins=False, end="commit"
        )

    more = numbered(BATCH, start=300)
    driver.transact("second of " + transactional_id, transactional_id, topic, more, end="commit")
    for reader in (driver, reference):
        assert_committed(reader, topic, [*committed, *taken_over, *more])
