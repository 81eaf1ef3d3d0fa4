"""Assign partitions to members where the broker leads a group.

All functions are pure. ``even`` is for groups in which all members are managed. The other two are Kafka's,
under Kafka's names, so that members of the Kafka listener find one that they know,
whichever member leads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..base.consumer_protocol import AssignedPartition

# Topics by member id; members in the order in which they joined.
Subscriptions = Mapping[str, frozenset[str]]
Assignments = dict[str, set[AssignedPartition]]
# Topic → number of partitions; topics that do not exist are not in it.
Partitions = Mapping[str, int]
Previous = Mapping[str, frozenset[AssignedPartition]]


def even(subscriptions: Subscriptions, partitions: Partitions, previous: Previous) -> Assignments:
    """Assign as evenly as the subscriptions allow; members keep partitions as long as that stays even.

    If all subscribe to the same topics, no two members differ by more than one partition.
    """
    assignments: Assignments = {member: set() for member in subscriptions}
    if not assignments:
        return assignments
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    everything = [
        AssignedPartition(topic, partition)
        for topic in sorted(wanted & partitions.keys())
        for partition in range(partitions[topic])
    ]
    free = dict.fromkeys(everything)
    quota, extra = divmod(len(everything), len(assignments))
    # The members that had most keep one more than the others while the remainder lasts.
    kept_by_member = {
        member: sorted(
            part for part in previous.get(member, ()) if part in free and part.topic in subscriptions[member]
        )
        for member in assignments
    }
    for member in sorted(assignments, key=lambda member: -len(kept_by_member[member])):
        mine = [part for part in kept_by_member[member] if part in free]
        room = quota
        if len(mine) > quota and extra > 0:
            room, extra = quota + 1, extra - 1
        for part in mine[:room]:
            assignments[member].add(part)
            del free[part]
    for part in free:
        candidates = [member for member, topics in subscriptions.items() if part.topic in topics]
        assignments[min(candidates, key=lambda member: len(assignments[member]))].add(part)
    _balance(assignments, subscriptions)
    return assignments


def _balance(assignments: Assignments, subscriptions: Subscriptions) -> None:
    """Move partitions from members with the most to members with the fewest.

    Only among subscribers of a topic, until no move makes the assignment more even.
    """
    for _ in range(sum(map(len, assignments.values()))):
        by_load = sorted(assignments, key=lambda member: len(assignments[member]))
        move = next(
            (
                (rich, poor, part)
                for rich in reversed(by_load)
                for poor in by_load
                if len(assignments[rich]) - len(assignments[poor]) > 1
                for part in sorted(assignments[rich])
                if part.topic in subscriptions[poor]
            ),
            None,
        )
        if move is None:
            return
        rich, poor, part = move
        assignments[rich].remove(part)
        assignments[poor].add(part)


def in_ranges(subscriptions: Subscriptions, partitions: Partitions, previous: Previous) -> Assignments:
    """Assign like Kafka's ``range``.

    Each topic is divided into one run per subscriber, and the first runs are longer.
    """
    del previous
    assignments: Assignments = {member: set() for member in subscriptions}
    for topic, count in partitions.items():
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        start = 0
        for index, member in enumerate(members):
            size = count // len(members) + (index < count % len(members))
            assignments[member].update(AssignedPartition(topic, start + number) for number in range(size))
            start += size
    return assignments


def in_turn(subscriptions: Subscriptions, partitions: Partitions, previous: Previous) -> Assignments:
    """Assign like Kafka's ``roundrobin``: all partitions of all topics, one by one."""
    del previous
    assignments: Assignments = {member: set() for member in subscriptions}
    members = sorted(subscriptions)
    next_member = 0
    for topic in sorted(partitions):
        subscribed = [member for member in members if topic in subscriptions[member]]
        for partition in range(partitions[topic] if subscribed else 0):
            while topic not in subscriptions[members[next_member % len(members)]]:
                next_member += 1
            assignments[members[next_member % len(members)]].add(AssignedPartition(topic, partition))
            next_member += 1
    return assignments


Assignor = Callable[[Subscriptions, Partitions, Previous], Assignments]

# In the order in which managed members offer them.
ASSIGNORS: Mapping[str, Assignor] = {"stele-even": even, "range": in_ranges, "roundrobin": in_turn}
ASSIGNOR_NAMES: Sequence[str] = tuple(ASSIGNORS)
