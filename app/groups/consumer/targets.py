"""The target assignment of a consumer group, made in steps (KIP-848).

Members, their subscriptions and the topics are those of the moment when it began. What changes
meanwhile raises the group epoch, so another target follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

from ...cluster.consumer_group_store import ConsumerMember, OwnedPartition
from ...work_budget import Ongoing, Pace, Steps
from ..base.assignors import CONSUMER_ASSIGNORS, DEFAULT_ASSIGNOR
from ..base.topic_facts import TopicFacts, TopicsOf

_TOPICS_PER_STEP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTargets:
    """``members`` are those whose target changes: as they were, and with their new target.

    ``partitions`` are the numbers of partitions by topic that were assigned.
    """

    assignor: str
    members: Sequence[tuple[ConsumerMember, ConsumerMember]]
    partitions: Mapping[UUID, int]


@dataclass(slots=True, kw_only=True)
class Assigning:
    """A target on its way. ``epoch`` is the group epoch that it is for; ``now_ms`` when it began.

    ``renamed``: the new ids of static members that came back meanwhile.
    """

    epoch: int
    now_ms: int
    work: Ongoing[NewTargets]
    renamed: dict[str, str] = field(default_factory=dict[str, str])

    def rename(self, member_id: str, new_id: str) -> None:
        began_as = next((first for first, now in self.renamed.items() if now == member_id), member_id)
        self.renamed[began_as] = new_id


def new_targets(
    members: Collection[ConsumerMember],
    *,
    names: Collection[str],
    topics_of_member: Callable[[ConsumerMember], frozenset[str]],
    topics_of: TopicsOf,
) -> Steps[NewTargets]:
    """Assign the partitions of the topics ``names``."""
    pace = Pace()
    facts: dict[str, TopicFacts] = {}
    left = iter(names)
    while some := list(islice(left, _TOPICS_PER_STEP)):
        facts.update(topics_of(some))
        yield
    subscriptions: dict[str, frozenset[UUID]] = {}
    # Most members read the same topics.
    known: dict[frozenset[str], frozenset[UUID]] = {}
    votes: Counter[str] = Counter()
    for member in members:
        topics = topics_of_member(member)
        if topics not in known:
            known[topics] = frozenset(facts[name].topic_id for name in topics if name in facts)
        subscriptions[member.member_id] = known[topics]
        if member.assignor:
            votes[member.assignor] += 1
        if pace.is_due():
            yield
    # The assignor with the most votes; the default without any, and before others in a tie.
    assignor = max(CONSUMER_ASSIGNORS, key=lambda name: votes[name]) if votes else DEFAULT_ASSIGNOR
    partitions = {topic.topic_id: topic.partitions for topic in facts.values()}
    targets = yield from CONSUMER_ASSIGNORS[assignor](
        OwnedPartition, subscriptions, partitions, {member.member_id: member.target for member in members}
    )
    changed: list[tuple[ConsumerMember, ConsumerMember]] = []
    for member in members:
        target = targets[member.member_id]
        if target != member.target:
            changed.append((member, replace(member, target=target)))
        if pace.is_due(5):
            yield
    return NewTargets(assignor=assignor, members=changed, partitions=partitions)
