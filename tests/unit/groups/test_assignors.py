"""Assignors give each partition to one subscriber, and the even assignor balances them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.groups.base.assignors import CLASSIC_ASSIGNORS, Assignments, in_ranges, in_turn, uniform
from app.groups.base.consumer_protocol import AssignedPartition, assigned_partitions, encode_assignment
from tests.support.steps import outcome_of

Assigned = Assignments[AssignedPartition]

TOPICS = st.sampled_from(["a", "b", "c", "gone"])
SUBSCRIPTIONS = st.dictionaries(st.text("mno", min_size=1, max_size=3), st.frozensets(TOPICS), max_size=6)
PARTITIONS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
PREVIOUS = st.dictionaries(
    st.text("mno", min_size=1, max_size=3),
    st.frozensets(st.builds(AssignedPartition, TOPICS, st.integers(0, 12)), max_size=8),
)


def even(
    subscriptions: dict[str, frozenset[str]],
    partitions: dict[str, int],
    previous: dict[str, frozenset[AssignedPartition]],
) -> Assigned:
    return outcome_of(uniform(AssignedPartition, subscriptions, partitions, previous))


def parts(topic: str, *numbers: int) -> set[AssignedPartition]:
    return {AssignedPartition(topic, number) for number in numbers}


@given(SUBSCRIPTIONS, PARTITIONS, PREVIOUS, st.sampled_from(sorted(CLASSIC_ASSIGNORS)))
def test_each_partition_goes_to_exactly_one_of_its_subscribers(
    subscriptions: dict[str, frozenset[str]],
    partitions: dict[str, int],
    previous: dict[str, frozenset[AssignedPartition]],
    name: str,
) -> None:
    assignments = outcome_of(CLASSIC_ASSIGNORS[name](AssignedPartition, subscriptions, partitions, previous))
    assert assignments.keys() == subscriptions.keys()
    given_out = [part for mine in assignments.values() for part in mine]
    subscribed = {topic for topics in subscriptions.values() for topic in topics}
    wanted = {AssignedPartition(t, p) for t, n in partitions.items() if t in subscribed for p in range(n)}
    assert len(given_out) == len(wanted)
    assert set(given_out) == wanted
    assert all(part.topic in subscriptions[member] for member, mine in assignments.items() for part in mine)


@given(SUBSCRIPTIONS, PARTITIONS, PREVIOUS)
def test_no_two_members_differ_by_more_than_one_where_a_partition_could_be_moved(
    subscriptions: dict[str, frozenset[str]],
    partitions: dict[str, int],
    previous: dict[str, frozenset[AssignedPartition]],
) -> None:
    assignments = even(subscriptions, partitions, previous)
    for rich, mine in assignments.items():
        for poor, theirs in assignments.items():
            if len(mine) - len(theirs) > 1:
                assert not any(part.topic in subscriptions[poor] for part in mine), (rich, poor)


def test_members_keep_what_they_had_when_another_joins() -> None:
    both = frozenset({"a"})
    before = even({"m": both, "n": both}, {"a": 6}, {})
    kept = {member: frozenset(mine) for member, mine in before.items()}
    after = even({"m": both, "n": both, "o": both}, {"a": 6}, kept)
    assert [len(mine) for mine in after.values()] == [2, 2, 2]
    assert after["m"] < before["m"]
    assert after["n"] < before["n"]


def test_members_keep_what_they_had_when_another_leaves() -> None:
    both = frozenset({"a"})
    before = even({"m": both, "n": both, "o": both}, {"a": 7}, {})
    kept = {member: frozenset(mine) for member, mine in before.items()}
    after = even({"m": both, "o": both}, {"a": 7}, kept)
    assert after["m"] >= before["m"]
    assert after["o"] >= before["o"]


def test_ranges_are_those_of_kafka() -> None:
    both = frozenset({"a", "b"})
    assert outcome_of(in_ranges(AssignedPartition, {"n": both, "m": both}, {"a": 3, "b": 2}, {})) == {
        "m": parts("a", 0, 1) | parts("b", 0),
        "n": parts("a", 2) | parts("b", 1),
    }


def test_turns_are_those_of_kafka() -> None:
    both = frozenset({"a", "b"})
    expected = {"m": parts("a", 0, 2) | parts("b", 1), "n": parts("a", 1) | parts("b", 0)}
    assert outcome_of(in_turn(AssignedPartition, {"n": both, "m": both}, {"a": 3, "b": 2}, {})) == expected


@given(st.sets(st.builds(AssignedPartition, st.text(max_size=5), st.integers(0, 2**31 - 1))))
def test_an_assignment_survives_its_bytes(assigned: set[AssignedPartition]) -> None:
    assert assigned_partitions(encode_assignment(assigned)) == assigned


@given(st.binary(max_size=60))
def test_no_bytes_at_all_break_the_decoder_of_assignments(raw: bytes) -> None:
    assigned_partitions(raw)


def test_an_assignment_that_claims_more_than_its_bytes_hold_is_none() -> None:
    whole = encode_assignment({AssignedPartition("topic", 1), AssignedPartition("topic", 2)})
    for size in range(len(whole) - 4):
        assert assigned_partitions(whole[:size]) == frozenset()
    assert assigned_partitions(b"\x00\x00\x7f\xff\xff\xff") == frozenset()


def test_even_moves_partitions_until_no_two_members_that_could_share_differ_by_more_than_one() -> None:
    previous = {"a": frozenset({AssignedPartition("y", 0), AssignedPartition("y", 1)})}
    subscriptions = {"a": frozenset({"x", "y"}), "b": frozenset({"y"})}
    assigned = even(subscriptions, {"x": 2, "y": 2}, previous)
    assert {member: len(parts) for member, parts in assigned.items()} == {"a": 2, "b": 2}
