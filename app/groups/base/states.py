"""The states of a classic group, and the events that lead from one to another.

Members join. When all of them have joined, a new generation begins and one
member, the leader, assigns partitions to all. Once its assignment is kept, the
group is stable until a member joins, leaves or changes its subscription::

            ┌──────────────────────── REBALANCE ─────────────────────────┐
            │                   ┌──── REBALANCE ────┐                    │
            ▼                   ▼                   │                    │
    ┌─ PREPARING_REBALANCE ─ JOINED ─▶ COMPLETING_REBALANCE ─ ASSIGNED ─▶ STABLE
    │       ▲
   LEFT  REBALANCE
    │       │
    └───▶ EMPTY ─ DELETED ─▶ DEAD

Any group with members becomes EMPTY by UPGRADED, when the broker takes the assignment of its members over
(``migration``). DOWNGRADED is the reverse, from EMPTY to STABLE.

``TRANSITIONS`` is that diagram as a table. ``Group.handle`` looks transitions up
in it and knows no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias

# The protocol of a group's members.
GroupType: TypeAlias = Literal["classic", "consumer", "share"]


class GroupState(Enum):
    """The state of a group, by the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    # Of consumer groups whose partitions the broker assigns (``consumer.group``); a classic group is never in them.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class Event(Enum):
    """Events that move a group to another state."""

    REBALANCE = "a member joined, left or changed"
    JOINED = "all members joined or were removed: the leader may assign"
    LEFT = "no member is left"
    ASSIGNED = "the leader's assignment is kept"
    DELETED = "the group is deleted"
    UPGRADED = "the broker assigns from now on: the members are in a consumer group"
    DOWNGRADED = "the members are back from a consumer group"


_S = GroupState

TRANSITIONS: Mapping[GroupState, Mapping[Event, GroupState]] = {
    _S.EMPTY: {
        Event.REBALANCE: _S.PREPARING_REBALANCE,
        Event.DELETED: _S.DEAD,
        Event.DOWNGRADED: _S.STABLE,
    },
    _S.PREPARING_REBALANCE: {
        Event.JOINED: _S.COMPLETING_REBALANCE,
        Event.LEFT: _S.EMPTY,
        Event.UPGRADED: _S.EMPTY,
    },
    _S.COMPLETING_REBALANCE: {
        Event.REBALANCE: _S.PREPARING_REBALANCE,
        Event.ASSIGNED: _S.STABLE,
        Event.UPGRADED: _S.EMPTY,
    },
    _S.STABLE: {Event.REBALANCE: _S.PREPARING_REBALANCE, Event.UPGRADED: _S.EMPTY},
    _S.DEAD: {},
}
