"""Kafka's two assignors of the broker: ``uniform`` and ``range`` (KIP-848).

Pure functions from subscriptions and the target assignment before to the next one.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from ...cluster.consumer_group_store import OwnedPartition

# Topic ids by member id.
Subscriptions = Mapping[str, frozenset[UUID]]
# Number of partitions by topic id.
Partitions = Mapping[UUID, int]
Targets = Mapping[str, frozenset[OwnedPartition]]


def uniform(subscriptions: Subscriptions, partitions: Partitions, previous: Targets) -> Targets:
    """Assign evenly; members keep partitions as long as that stays even.

    If all members subscribe to the same topics, no two differ by more than one partition, and
    as few partitions move as that allows. Otherwise no move of a single partition could make
    the assignment more even.
    """
    if not subscriptions:
        return {}
    are_same = len(set(subscriptions.values())) == 1
    return (_same if are_same else _different)(subscriptions, partitions, previous)


def _same(subscriptions: Subscriptions, partitions: Partitions, previous: Targets) -> Targets:
    topics = next(iter(subscriptions.values()))
    free = dict.fromkeys(
        OwnedPartition(topic, number)
        for topic in sorted(topics & partitions.keys())
        for number in range(partitions[topic])
    )
    quota, extra = divmod(len(free), len(subscriptions))
    had = {
        member: [part for part in sorted(previous.get(member, ())) if part in free]
        for member in subscriptions
    }
    assigned: dict[str, list[OwnedPartition]] = {}
    # Those that had most keep one more than the others while the remainder lasts.
    for member in sorted(subscriptions, key=lambda member: (-len(had[member]), member)):
        room = quota
        if extra and len(had[member]) > quota:
            room, extra = quota + 1, extra - 1
        # A partition that two members had is kept by the first.
        mine = assigned[member] = [part for part in had[member] if part in free][:room]
        for part in mine:
            del free[part]
    left = iter(free)
    for mine in assigned.values():
        room = quota
        if extra and len(mine) <= quota:
            room, extra = quota + 1, extra - 1
        for _ in range(room - len(mine)):
            mine.append(next(left))
    return {member: frozenset(mine) for member, mine in assigned.items()}


def _different(subscriptions: Subscriptions, partitions: Partitions, previous: Targets) -> Targets:
    assigned: dict[str, set[OwnedPartition]] = {member: set() for member in subscriptions}
    subscribers: defaultdict[UUID, list[str]] = defaultdict(list)
    for member in sorted(subscriptions):
        for topic in subscriptions[member] & partitions.keys():
            subscribers[topic].append(member)
    holders: dict[OwnedPartition, str] = {}
    for member in sorted(subscriptions):
        for part in previous.get(member, ()):
            topic, number = part
            if topic in subscriptions[member] and number < partitions.get(topic, 0) and part not in holders:
                holders[part] = member
                assigned[member].add(part)
    # Topics with few subscribers first: they leave the least choice.
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    for topic in topics:
        heap = [(len(assigned[member]), member) for member in subscribers[topic]]
        heapq.heapify(heap)
        for number in range(partitions[topic]):
            part = OwnedPartition(topic, number)
            if part not in holders:
                load, member = heap[0]
                holders[part] = member
                assigned[member].add(part)
                heapq.heapreplace(heap, (load + 1, member))
    # Each move makes the assignment more even, so this ends.
    while any(_balance(topic, subscribers[topic], assigned) for topic in topics):
        pass
    return {member: frozenset(parts) for member, parts in assigned.items()}


def _balance(topic: UUID, members: Sequence[str], assigned: dict[str, set[OwnedPartition]]) -> bool:
    """Move partitions of ``topic`` from members with many to members with few; True if any moved."""
    movable = {
        member: sorted(part for part in assigned[member] if part.topic_id == topic) for member in members
    }
    givers = [(-len(assigned[member]), member) for member in members if movable[member]]
    takers = [(len(assigned[member]), member) for member in members]
    heapq.heapify(givers)
    heapq.heapify(takers)
    has_moved = False
    while givers:
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


def in_ranges(subscriptions: Subscriptions, partitions: Partitions, previous: Targets) -> Targets:
    """Divide each topic into one run per subscriber; the first runs are longer."""
    del previous
    assigned: dict[str, set[OwnedPartition]] = {member: set() for member in subscriptions}
    for topic, count in partitions.items():
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        start = 0
        for index, member in enumerate(members):
            size = count // len(members) + (index < count % len(members))
            assigned[member].update(OwnedPartition(topic, start + number) for number in range(size))
            start += size
    return {member: frozenset(parts) for member, parts in assigned.items()}


ConsumerAssignor = Callable[[Subscriptions, Partitions, Targets], Targets]

# The first is the default.
CONSUMER_ASSIGNORS: Mapping[str, ConsumerAssignor] = {"uniform": uniform, "range": in_ranges}
DEFAULT_ASSIGNOR = next(iter(CONSUMER_ASSIGNORS))
