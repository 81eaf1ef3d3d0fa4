"""The state machine of one group, by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.group_store import MemberProtocol
from app.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMember,
)
from app.groups.base.consumer_protocol import _TOPICS_MAX, subscribed_topics
from app.groups.base.member import Member
from app.groups.base.states import TRANSITIONS, Event, GroupState
from app.groups.classic.group import Group
from tests.support.groups import subscription

S = GroupState
LEGAL = {
    (S.EMPTY, Event.REBALANCE): S.PREPARING_REBALANCE,
    (S.EMPTY, Event.DELETED): S.DEAD,
    (S.PREPARING_REBALANCE, Event.JOINED): S.COMPLETING_REBALANCE,
    (S.PREPARING_REBALANCE, Event.LEFT): S.EMPTY,
    (S.COMPLETING_REBALANCE, Event.REBALANCE): S.PREPARING_REBALANCE,
    (S.COMPLETING_REBALANCE, Event.ASSIGNED): S.STABLE,
    (S.STABLE, Event.REBALANCE): S.PREPARING_REBALANCE,
    (S.EMPTY, Event.DOWNGRADED): S.STABLE,
    (S.PREPARING_REBALANCE, Event.UPGRADED): S.EMPTY,
    (S.COMPLETING_REBALANCE, Event.UPGRADED): S.EMPTY,
    (S.STABLE, Event.UPGRADED): S.EMPTY,
}


def member(member_id: str, *protocols: str, instance_id: str | None = None, timeout_ms: int = 1000) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="h",
        session_timeout_ms=timeout_ms,
        rebalance_timeout_ms=timeout_ms,
        protocols=tuple(MemberProtocol(name, name.encode()) for name in protocols or ("range",)),
        is_awaiting_join=True,
    )


def group_of(*members: Member) -> Group:
    group = Group("g")
    for one in members:
        group.add(one, "consumer")
    return group


def stable(*members: Member) -> Group:
    group = group_of(*members)
    group.handle(Event.REBALANCE)
    group.next_generation()
    group.assign({one.member_id: one.member_id.encode() for one in members})
    return group


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", TRANSITIONS)
def test_an_event_has_the_transition_of_the_table_or_is_a_bug(state: GroupState, event: Event) -> None:
    group = Group("g")
    group.state = state
    assert group.can(event) == ((state, event) in LEGAL)
    if group.can(event):
        group.handle(event)
        assert group.state is LEGAL[state, event]
    else:
        with pytest.raises(AssertionError):
            group.handle(event)
        assert group.state is state


def test_every_state_can_be_reached_and_only_a_deleted_group_is_at_its_end() -> None:
    assert {after for events in TRANSITIONS.values() for after in events.values()} == set(TRANSITIONS)
    # Two are of groups whose partitions the broker assigns.
    assert set(GroupState) - set(TRANSITIONS) == {S.ASSIGNING, S.RECONCILING}
    assert [state for state, events in TRANSITIONS.items() if not events] == [S.DEAD]


def test_the_first_member_leads_until_it_goes() -> None:
    group = group_of(member("a"), member("b"), member("c"))
    assert group.leader == "a"
    group.remove("b")
    assert group.leader == "a"
    group.remove("a")
    assert group.leader == "c"
    group.remove("c")
    assert group.leader is None


def test_a_leader_that_did_not_join_is_replaced_by_a_member_that_did() -> None:
    group = group_of(member("a"), member("b"), member("c"))
    group.set_awaiting_join(group.members["a"], False)
    assert group.elect_leader()
    assert group.leader == "b"
    for one in group.members.values():
        group.set_awaiting_join(one, False)
    assert not group.elect_leader()
    assert not Group("empty").elect_leader()


def test_the_protocol_is_the_one_with_most_votes_among_those_that_all_support() -> None:
    group = group_of(member("a", "x", "y"), member("b", "y", "x"), member("c", "z", "y", "x"))
    # z is c's favourite, and nobody else has it; its vote goes to y.
    assert group.select_protocol() == "y"


def test_a_tie_of_votes_is_decided_the_same_way_each_time() -> None:
    assert {group_of(member("a", "x", "y"), member("b", "y", "x")).select_protocol() for _ in range(9)} == {
        "x"
    }


@given(st.lists(st.permutations(["x", "y", "z"]), min_size=1, max_size=6))
def test_the_chosen_protocol_is_supported_by_all(orders: list[list[str]]) -> None:
    group = group_of(*(member(str(n), "all", *order[: n % 3]) for n, order in enumerate(orders)))
    chosen = group.select_protocol()
    assert all(chosen in [name for name, _ in one.protocols] for one in group.members.values())


def test_protocols_must_have_one_in_common_with_all_members() -> None:
    group = group_of(member("a", "x", "y"), member("b", "y", "z"))
    group.check_protocols("consumer", [MemberProtocol("y", b"")])
    for names in (["x"], ["z"], ["x", "z"], ["new"]):
        with pytest.raises(InconsistentGroupProtocol):
            group.check_protocols("consumer", [MemberProtocol(name, b"") for name in names])
    with pytest.raises(InconsistentGroupProtocol):
        group.check_protocols("connect", [MemberProtocol("y", b"")])


def test_a_member_alone_may_change_to_any_protocol() -> None:
    group = group_of(member("a", "x"))
    group.check_protocols("connect", [MemberProtocol("y", b"")], replacing="a")
    with pytest.raises(InconsistentGroupProtocol):
        group.check_protocols("consumer", [MemberProtocol("y", b"")])


@pytest.mark.parametrize(("protocol_type", "names"), [("", ["x"]), ("consumer", []), ("", [])])
def test_an_empty_group_wants_a_protocol_type_and_a_protocol(protocol_type: str, names: list[str]) -> None:
    with pytest.raises(InconsistentGroupProtocol):
        Group("g").check_protocols(protocol_type, [MemberProtocol(name, b"") for name in names])


def test_the_rebalance_waits_for_the_most_patient_member() -> None:
    group = group_of(member("a", timeout_ms=5), member("b", timeout_ms=900), member("c", timeout_ms=7))
    assert group.rebalance_timeout_ms == 900
    assert Group("empty").rebalance_timeout_ms == 0


def test_pending_members_hold_a_rebalance_up() -> None:
    group = group_of(member("a"))
    assert group.have_all_joined
    group.pending.add("b")
    assert not group.have_all_joined
    group.add(member("b"), "consumer")
    assert group.have_all_joined
    group.set_awaiting_join(group.members["a"], False)
    assert not group.have_all_joined


def test_requests_are_checked_by_instance_then_by_member_then_by_generation() -> None:
    group = stable(member("a", instance_id="i"), member("b"))
    assert group.check_member("a", "i").member_id == "a"
    assert group.check_member("b", None).member_id == "b"
    # A static member may leave its instance id out, as old clients do in some requests.
    assert group.check_member("a", None).member_id == "a"
    with pytest.raises(UnknownMember):
        group.check_member("a", "other")
    with pytest.raises(FencedInstance):
        group.check_member("b", "i")
    with pytest.raises(FencedInstance):
        group.check_member("nobody", "i")
    with pytest.raises(UnknownMember):
        group.check_member("nobody", None)
    group.check_generation(1)
    for generation in (-1, 0, 2):
        with pytest.raises(IllegalGeneration) as error:
            group.check_generation(generation)
        assert (error.value.generation, error.value.current_generation) == (generation, 1)


def test_a_static_member_that_comes_back_has_its_old_lead_and_assignment() -> None:
    group = stable(member("a", instance_id="i"), member("b"))
    new = group.replace_static(group.members["a"], "a2")
    assert {*group.members} == {"a2", "b"}
    assert group.leader == "a2"
    assert new.assignment == b"a"
    assert group.static_member("i") is new
    assert not (new.is_awaiting_join)
    assert not (new.is_awaiting_sync)
    group.check()


def test_a_generation_begins_without_the_assignments_of_the_last() -> None:
    group = stable(member("a"), member("b"))
    group.handle(Event.REBALANCE)
    group.set_awaiting_join(group.members["b"], False)
    group.next_generation()
    assert (group.generation, group.state) == (2, S.COMPLETING_REBALANCE)
    assert [one.assignment for one in group.members.values()] == [b"", b""]
    # Only who was answered can be expected to sync.
    assert group.pending_sync == {"a"}


def test_a_group_that_all_have_left_keeps_counting_its_generations() -> None:
    group = stable(member("a"))
    group.handle(Event.REBALANCE)
    group.remove("a")
    group.next_generation()
    assert (group.state, group.generation, group.protocol_name) == (S.EMPTY, 2, None)
    assert group.protocol_type == "consumer"


@pytest.mark.parametrize(
    ("state", "generation", "member_id", "refused"),
    [
        (S.EMPTY, -1, "", None),
        (S.EMPTY, -1, "x", None),
        (S.EMPTY, 0, "", UnknownMember),
        (S.EMPTY, 1, "a", UnknownMember),
        (S.STABLE, -1, "", UnknownMember),
        (S.STABLE, -1, "a", IllegalGeneration),
        (S.STABLE, 0, "a", IllegalGeneration),
        (S.STABLE, 1, "a", None),
        (S.STABLE, 1, "x", UnknownMember),
        (S.STABLE, 1, "", UnknownMember),
        (S.PREPARING_REBALANCE, 1, "a", None),
        (S.PREPARING_REBALANCE, 2, "a", IllegalGeneration),
        (S.PREPARING_REBALANCE, -1, "", UnknownMember),
        (S.COMPLETING_REBALANCE, 2, "a", RebalanceInProgress),
        (S.COMPLETING_REBALANCE, 1, "a", IllegalGeneration),
        (S.COMPLETING_REBALANCE, -1, "", UnknownMember),
    ],
)
def test_which_members_may_commit_in_which_state(
    state: GroupState, generation: int, member_id: str, refused: type[Exception] | None
) -> None:
    group = Group("g") if state is S.EMPTY else stable(member("a"))
    if state in (S.PREPARING_REBALANCE, S.COMPLETING_REBALANCE):
        group.handle(Event.REBALANCE)
    if state is S.COMPLETING_REBALANCE:
        group.next_generation()
    assert group.state is state
    if refused is None:
        found = group.check_commit(generation=generation, member_id=member_id, instance_id=None)
        assert (found is None) == (state is S.EMPTY)
    else:
        with pytest.raises(refused):
            group.check_commit(generation=generation, member_id=member_id, instance_id=None)


def test_a_restored_group_is_what_was_kept() -> None:
    group = stable(member("a", "x", "y", instance_id="i"), member("b", "y"))
    again = Group.restored(group.record())
    assert again.record() == group.record()
    assert (again.state, again.leader) == (S.STABLE, "a")
    assert again.check_member("a", "i").assignment == b"a"
    assert Group.restored(Group("empty").record()).state is S.EMPTY


def test_the_record_of_an_assignment_does_not_touch_the_group() -> None:
    group = stable(member("a"), member("b"))
    kept = group.record({"a": b"new"})
    assert [one.assignment for one in kept.members] == [b"new", b""]
    assert [one.assignment for one in group.members.values()] == [b"a", b"b"]


# ── subscriptions ──


def test_the_topics_of_a_subscription_are_read() -> None:
    assert subscribed_topics(subscription("a", "überall")) == {"a", "überall"}
    assert subscribed_topics(subscription("a", "b") + b"more, of a later version") == {"a", "b"}
    assert subscribed_topics(subscription()) == frozenset()


@given(st.binary(max_size=40))
def test_any_bytes_are_a_subscription_or_none(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(len(topic) < 40 for topic in topics)


@given(st.integers(0, 12))
def test_a_subscription_that_was_cut_off_is_none(size: int) -> None:
    assert subscribed_topics(subscription("ab", "cde")[:size]) is None


def test_a_subscription_to_more_topics_than_can_be_read_in_a_turn_is_none() -> None:
    topics = [str(number) for number in range(_TOPICS_MAX + 1)]
    assert subscribed_topics(subscription(*topics[1:])) == set(topics[1:])
    assert subscribed_topics(subscription(*topics)) is None


def test_a_group_whose_subscription_cannot_be_read_may_be_subscribed_to_anything() -> None:
    group = group_of(member("a", "range"))
    assert group.is_subscribed("orders")
    group.set_protocols(group.members["a"], (MemberProtocol("range", subscription("orders")),))
    assert group.is_subscribed("orders")
    assert not group.is_subscribed("other")
    assert group.subscribed({"orders", "other"}) == {"orders"}
    group.protocol_type = "connect"
    assert not group.is_subscribed("orders")
