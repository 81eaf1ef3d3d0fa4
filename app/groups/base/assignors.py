"""Assign partitions to the members of a group, in steps.

``uniform`` is even and moves few partitions. ``in_ranges`` and ``in_turn`` are Kafka's ``range`` and
``roundrobin``.

Topics have names in the classic protocol and ids in the other one (KIP-848): ``make`` makes a partition of a
topic and a number. Every assignor is pure. Its work grows with members and partitions, so it is a generator that
yields after each ``_STEP`` of them, and returns the assignment.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from ...work_budget import Pace, Steps

P = TypeVar("P", bound=tuple[Any, int])
# A name or an id.
T = TypeVar("T", bound=Any)

# Topics by member id; members in the order in which they joined.
Subscriptions: TypeAlias = Mapping[str, frozenset[T]]
# Number of partitions by topic; topics that do not exist are not in it.
Partitions: TypeAlias = Mapping[T, int]
Assignments: TypeAlias = Mapping[str, frozenset[P]]
Make: TypeAlias = Callable[[Any, int], P]


class Assignor(Protocol):
    def __call__(
        self,
        make: Make[P],
        subscriptions: Subscriptions[Any],
        partitions: Partitions[Any],
        previous: Assignments[P],
        /,
    ) -> Steps[Assignments[P]]: ...


def uniform(
    make: Make[P], subscriptions: Subscriptions[T], partitions: Partitions[T], previous: Assignments[P]
) -> Steps[Assignments[P]]:
    """Assign evenly; members keep partitions as long as that stays even.

    If all members subscribe to the same topics, no two differ by more than one partition, and
    as few partitions move as that allows. Otherwise no move of a single partition could make
    the assignment more even.
    """
    if not subscriptions:
        return {}
    are_same = len(set(subscriptions.values())) == 1
    return (yield from (_same if are_same else _different)(make, subscriptions, partitions, previous))


def _same(
    make: Make[P], subscriptions: Subscriptions[T], partitions: Partitions[T], previous: Assignments[P]
) -> Steps[Assignments[P]]:
    pace = Pace()
    topics = next(iter(subscriptions.values()))
    free: dict[P, None] = {}
    for topic in sorted(topics & partitions.keys()):
        for number in range(partitions[topic]):
            free[make(topic, number)] = None
            if pace.is_due():
                yield
    quota, extra = divmod(len(free), len(subscriptions))
    had: dict[str, list[P]] = {}
    for member in subscriptions:
        had[member] = [part for part in sorted(previous.get(member, ())) if part in free]
        if pace.is_due(1 + len(had[member])):
            yield
    assigned: dict[str, list[P]] = {}
    # Those that had most keep one more than the others while the remainder lasts.
    for member in sorted(subscriptions, key=lambda member: (-len(had[member]), member)):
        room = quota
        if extra and len(had[member]) > quota:
            room, extra = quota + 1, extra - 1
        # A partition that two members had is kept by the first.
        mine = assigned[member] = [part for part in had[member] if part in free][:room]
        for part in mine:
            del free[part]
        if pace.is_due(1 + len(mine)):
            yield
    left = iter(free)
    for mine in assigned.values():
        room = quota
        if extra and len(mine) <= quota:
            room, extra = quota + 1, extra - 1
        for _ in range(room - len(mine)):
            mine.append(next(left))
            if pace.is_due():
                yield
    return (yield from _frozen(assigned))


def _different(
    make: Make[P], subscriptions: Subscriptions[T], partitions: Partitions[T], previous: Assignments[P]
) -> Steps[Assignments[P]]:
    pace = Pace()
    assigned: dict[str, set[P]] = {member: set() for member in subscriptions}
    subscribers: defaultdict[T, list[str]] = defaultdict(list)
    for member in sorted(subscriptions):
        for topic in subscriptions[member] & partitions.keys():
            subscribers[topic].append(member)
            if pace.is_due():
                yield
    holders: dict[P, str] = {}
    for member in sorted(subscriptions):
        for part in previous.get(member, ()):
            topic, number = part
            if topic in subscriptions[member] and number < partitions.get(topic, 0) and part not in holders:
                holders[part] = member
                assigned[member].add(part)
            if pace.is_due():
                yield
    # Topics with few subscribers first: they leave the least choice.
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    for topic in topics:
        heap = [(len(assigned[member]), member) for member in subscribers[topic]]
        heapq.heapify(heap)
        if pace.is_due(len(heap)):
            yield
        for number in range(partitions[topic]):
            part = make(topic, number)
            if part not in holders:
                load, member = heap[0]
                holders[part] = member
                assigned[member].add(part)
                heapq.heapreplace(heap, (load + 1, member))
            if pace.is_due():
                yield
    has_moved = True
    while has_moved:
        # Each move makes the assignment more even, so this ends.
        has_moved = False
        for topic in topics:
            if (yield from _balance(topic, subscribers[topic], assigned)):
                has_moved = True
                break
    return (yield from _frozen(assigned))


def _balance(topic: Any, members: Sequence[str], assigned: dict[str, set[P]]) -> Steps[bool]:
    """Move partitions of ``topic`` from members with many to members with few; True if any moved."""
    pace = Pace()
    movable: dict[str, list[P]] = {}
    for member in members:
        movable[member] = sorted(part for part in assigned[member] if part[0] == topic)
        if pace.is_due(1 + len(assigned[member])):
            yield
    givers = [(-len(assigned[member]), member) for member in members if movable[member]]
    takers = [(len(assigned[member]), member) for member in members]
    heapq.heapify(givers)
    heapq.heapify(takers)
    has_moved = False
    while givers:
        if pace.is_due():
            yield
        most, giver = givers[0]
        if -most != len(assigned[giver]):
            # It gave or took meanwhile.
            heapq.heapreplace(givers, (-len(assigned[giver]), giver))
            continue
        least, taker = takers[0]
        if least != len(assigned[taker]):
            heapq.heapreplace(takers, (len(assigned[taker]), taker))
            continue
        if -most - least < 2:
            return has_moved
        part = movable[giver].pop()
        assigned[giver].remove(part)
        assigned[taker].add(part)
        has_moved = True
        if not movable[giver]:
            heapq.heappop(givers)
    return has_moved


def in_ranges(
    make: Make[P], subscriptions: Subscriptions[T], partitions: Partitions[T], previous: Assignments[P]
) -> Steps[Assignments[P]]:
    """Divide each topic into one run per subscriber; the first runs are longer."""
    del previous
    pace = Pace()
    assigned: dict[str, set[P]] = {member: set() for member in subscriptions}
    everyone = sorted(subscriptions)
    for topic, count in partitions.items():
        members = [member for member in everyone if topic in subscriptions[member]]
        start = 0
        for index, member in enumerate(members):
            size = count // len(members) + (index < count % len(members))
            assigned[member].update(make(topic, start + number) for number in range(size))
            start += size
            if pace.is_due(1 + size):
                yield
        if pace.is_due(len(everyone)):
            yield
    return (yield from _frozen(assigned))


def in_turn(
    make: Make[P], subscriptions: Subscriptions[T], partitions: Partitions[T], previous: Assignments[P]
) -> Steps[Assignments[P]]:
    """Give all partitions of all topics, one by one, to the subscribers in turn."""
    del previous
    pace = Pace()
    assigned: dict[str, set[P]] = {member: set() for member in subscriptions}
    members = sorted(subscriptions)
    next_member = 0
    for topic in sorted(partitions):
        is_subscribed = any(topic in topics for topics in subscriptions.values())
        if pace.is_due(len(members)):
            yield
        for partition in range(partitions[topic] if is_subscribed else 0):
            while topic not in subscriptions[members[next_member % len(members)]]:
                next_member += 1
                if pace.is_due():
                    yield
            assigned[members[next_member % len(members)]].add(make(topic, partition))
            next_member += 1
            if pace.is_due():
                yield
    return (yield from _frozen(assigned))


def _frozen(assigned: Mapping[str, Iterable[P]]) -> Steps[Assignments[P]]:
    pace = Pace()
    frozen: dict[str, frozenset[P]] = {}
    for member, parts in assigned.items():
        frozen[member] = parts = frozenset(parts)
        if pace.is_due(1 + len(parts)):
            yield
    return frozen


# Of groups in which the broker assigns (KIP-848). The first is the default.
CONSUMER_ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": in_ranges}
DEFAULT_ASSIGNOR = next(iter(CONSUMER_ASSIGNORS))
# Of classic groups that the broker leads, in the order in which managed members offer them. ``stele-even`` is for groups
# of such members only; the others have Kafka's names, so that members of the Kafka listener find one that they know.
CLASSIC_ASSIGNORS: Mapping[str, Assignor] = {
    "stele-even": uniform,
    "range": in_ranges,
    "roundrobin": in_turn,
}
