"""Random histories of one consumer group: clients that lose answers, die and come back, a coordinator that crashes.

The clients are what Kafka's are: they repeat everything after a lost answer, give up
partitions some time after they are told to, and say so with the next heartbeat. The
store has what was written; a crash begins again with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest

from app.cluster.consumer_group_store import (
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberRecord,
    DeleteConsumerMember,
    OwnedPartition,
    StoredConsumerGroup,
)
from app.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
)
from app.groups.base.messages import CommitRequest
from app.groups.base.states import GroupState
from app.groups.base.topic_facts import TopicFacts
from app.groups.consumer.commits import check_commit
from app.groups.consumer.group import ConsumerGroup
from app.groups.consumer.messages import ConsumerHeartbeat

_NAMES = ("a", "b", "c")
_SIZE_MAX = 6


@dataclass
class Client:
    """``owned`` is what it reads; ``assigned`` what it was told last. ``answer_is_lost``: repeat everything."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[OwnedPartition] = field(default_factory=set[OwnedPartition])
    assigned: frozenset[OwnedPartition] = frozenset()
    answer_is_lost: bool = True
    reported: frozenset[OwnedPartition] | None = None
    # The broker may have removed it: its session or its time to give up partitions ended.
    may_be_fenced: bool = False
    # The epochs in which it read each partition.
    read_at: dict[OwnedPartition, set[int]] = field(default_factory=dict[OwnedPartition, set[int]])


class ConsumerGroupHistory:
    """One seed of a history. ``run`` raises at the first step that breaks an invariant."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.interval_ms = self.random.choice((0, 0, 1000))
        self.now_ms = 0
        self.topics: dict[str, TopicFacts] = {}
        self._ids = 0
        for name in _NAMES[:2]:
            self._make_topic(name, self.random.randint(1, 6))
        self.group = ConsumerGroup("g", topics_of=self._facts)
        self.stored: ConsumerGroupRecord | None = None
        self.stored_members: dict[str, ConsumerMember] = {}
        self.clients: list[Client] = []
        # Members that the broker still has, and that never come back.
        self.dead: set[str] = set()
        self.away: list[Client] = []
        self.told = 0
        self.is_calm = False

    def _facts(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def _make_topic(self, name: str, partitions: int) -> None:
        self._ids += 1
        self.topics[name] = TopicFacts(topic_id=UUID(int=self._ids), partitions=partitions)

    # ── the store ──

    def _write(self) -> None:
        for change in self.group.take_changes():
            match change:
                case ConsumerGroupRecord():
                    assert self.stored is None or change.epoch >= self.stored.epoch
                    assert self.stored is None or change.assignment_epoch >= self.stored.assignment_epoch
                    self.stored = change
                case ConsumerMemberRecord(member=member):
                    self.stored_members[member.member_id] = member
                case DeleteConsumerMember(member_id=member_id):
                    self.stored_members.pop(member_id, None)
                case _:
                    raise AssertionError(change)

    def _crash(self) -> None:
        if self.stored is None:
            self.group = ConsumerGroup("g", topics_of=self._facts)
        else:
            self.group = ConsumerGroup.restored(
                StoredConsumerGroup(record=self.stored, members=list(self.stored_members.values())),
                topics_of=self._facts,
            )
            self.group.topics_changed()
        assert self.group.epoch >= self.told, "an epoch that a member was told is lost"

    # ── clients ──

    def _join(self) -> None:
        self._ids += 1
        topics = frozenset(self.random.sample(_NAMES, self.random.randint(1, 3)))
        if self.random.random() < 0.6:
            topics = frozenset(_NAMES)
        instance = f"i{self.random.randint(1, 3)}" if self.random.random() < 0.3 else None
        if instance is not None and any(client.instance_id == instance for client in self.clients):
            instance = None
        assignor = self.random.choice((None, None, "uniform", "range"))
        self.clients.append(Client(f"m{self._ids}", topics, instance_id=instance, assignor=assignor))

    def _heartbeat(self, client: Client, *, is_lost: bool = False) -> None:
        is_full = client.answer_is_lost or client.epoch == 0
        owned = frozenset(client.owned)
        report = owned if is_full or owned != client.reported else None
        request = ConsumerHeartbeat(
            group="g",
            member_id=client.member_id,
            epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=60_000 if is_full else None,
            topics=client.topics if is_full else None,
            assignor=client.assignor if is_full else None,
            owned=report,
        )
        try:
            stepped = self.group.heartbeat(
                request, now_ms=self.now_ms, interval_ms=self.interval_ms, size_max=_SIZE_MAX
            )
        except (FencedMemberEpoch, UnknownMember):
            assert client.may_be_fenced, f"{client.member_id} did nothing wrong"
            client.epoch, client.owned, client.assigned = 0, set(), frozenset()
            client.answer_is_lost, client.may_be_fenced, client.read_at = True, False, {}
            # A member with an old id at a newer epoch has to expire first; a new id does not wait for that.
            if client.member_id in self.group.members:
                self.dead.add(client.member_id)
            self._ids += 1
            client.member_id = f"m{self._ids}"
            return
        except (GroupFull, UnreleasedInstance):
            assert client.epoch == 0
            if client.member_id not in self.group.members:
                self.clients.remove(client)
            return
        self.group.check()
        if not self.is_calm and self.random.random() < 0.1:
            # The broker dies before it has written that, so there is no answer.
            self._crash()
            is_lost = True
        else:
            self._write()
        client.answer_is_lost = is_lost
        if is_lost:
            return
        member = stepped.member
        assert member.epoch >= max(client.epoch, 1)
        self.told = max(self.told, member.epoch)
        client.epoch, client.reported = member.epoch, owned
        if stepped.has_changed or request.is_full:
            client.assigned = frozenset(member.assigned)
        self._take(client)

    def _take(self, client: Client) -> None:
        """Begin to read what is assigned."""
        for part in client.assigned - client.owned:
            for other in self.clients:
                assert other is client or part not in other.owned, f"{part} has two owners"
                for epoch in other.read_at.get(part, ()) if other is not client else ():
                    self._commit_is_refused(other, part, epoch)
            client.owned.add(part)
        for part in client.owned:
            client.read_at.setdefault(part, set()).add(client.epoch)

    def _commit_is_refused(self, client: Client, part: OwnedPartition, epoch: int) -> None:
        member = self.group.members.get(client.member_id)
        if member is not None and member.epoch == epoch:
            # As in Kafka, the current epoch may commit anything.
            return
        with pytest.raises((StaleMemberEpoch, UnknownMember)):
            self._commit(client, part, epoch)

    def _commit(self, client: Client, part: OwnedPartition, epoch: int) -> None:
        request = CommitRequest(group="g", generation=epoch, member_id=client.member_id, offsets=())
        check_commit(self.group, request, [part])

    def _give_up(self, client: Client) -> None:
        for part in client.owned - client.assigned:
            if not client.may_be_fenced:
                # The last commit before it stops, though the broker may have moved on.
                self._commit(client, part, client.epoch)
        client.owned &= client.assigned

    def _leave(self, client: Client) -> None:
        epoch = -2 if client.instance_id is not None and self.random.random() < 0.7 else -1
        self.clients.remove(client)
        try:
            self.group.leave(
                ConsumerHeartbeat(
                    group="g", member_id=client.member_id, epoch=epoch, instance_id=client.instance_id
                ),
                emptied_at_ms=self.now_ms,
            )
        except (UnknownMember, FencedInstance):
            return
        if epoch == -2:
            self.away.append(client)
        if self.random.random() < 0.3:
            self._crash()
            if client.member_id in self.group.members:
                self.dead.add(client.member_id)
        else:
            self._write()

    def _return(self) -> None:
        before = self.away.pop()
        if any(client.instance_id == before.instance_id for client in self.clients):
            return
        self._ids += 1
        self.clients.append(Client(f"m{self._ids}", before.topics, instance_id=before.instance_id))

    def _expire(self, member_id: str) -> None:
        if member_id in self.group.members:
            self.group.remove(member_id, emptied_at_ms=self.now_ms)
            self.group.check()
        self.dead.discard(member_id)

    def _change_topics(self) -> None:
        name = self.random.choice(_NAMES)
        facts = self.topics.get(name)
        if facts is None:
            self._make_topic(name, self.random.randint(1, 5))
        elif self.random.random() < 0.4:
            del self.topics[name]
        else:
            self.topics[name] = TopicFacts(topic_id=facts.topic_id, partitions=facts.partitions + 1)
        self.group.topics_changed()

    # ── histories ──

    def run(self, steps: int = 120) -> None:
        for _ in range(steps):
            self._step()
        self._settle()

    def _step(self) -> None:
        self.now_ms += self.random.choice((0, 10, 500, 5000))
        choice = self.random.random()
        client = self.random.choice(self.clients) if self.clients else None
        if client is None or choice < 0.08:
            self._join()
        elif choice < 0.60:
            self._heartbeat(client, is_lost=self.random.random() < 0.15)
        elif choice < 0.80:
            self._give_up(client)
        elif choice < 0.83:
            self._leave(client)
        elif choice < 0.86:
            self.clients.remove(client)
            self.dead.add(client.member_id)
        elif choice < 0.88 and self.dead:
            self._expire(self.random.choice(sorted(self.dead)))
        elif choice < 0.90:
            # It was too slow: the broker removed it, and it stops before another begins.
            client.may_be_fenced, client.owned, client.read_at = True, set(), {}
            client.answer_is_lost = True
            self._expire(client.member_id)
        elif choice < 0.92 and self.away:
            self._return()
        elif choice < 0.94:
            client.topics = frozenset(self.random.sample(_NAMES, self.random.randint(1, 3)))
            client.answer_is_lost = True
        elif choice < 0.96:
            self._change_topics()
        elif choice < 0.98:
            self._crash()
        elif self.group.members and self.group.is_assignment_due(self.now_ms, interval_ms=self.interval_ms):
            self.group.assign(self.now_ms)

    def _settle(self) -> None:
        """Let all be well from now on: every partition must end with one owner."""
        self.is_calm = True
        for client in [*self.away]:
            self.away.remove(client)
            self.dead.add(client.member_id)
        for member_id in sorted(self.group.members.keys() - {client.member_id for client in self.clients}):
            self._expire(member_id)
        self.dead.clear()
        if not self.clients:
            return
        for _ in range(40):
            self.now_ms += 5000
            for client in list(self.clients):
                self._give_up(client)
                self._heartbeat(client)
        for member_id in sorted(self.group.members.keys() - {client.member_id for client in self.clients}):
            self._expire(member_id)
        for _ in range(40):
            self.now_ms += 5000
            for client in list(self.clients):
                self._give_up(client)
                self._heartbeat(client)
        if self.clients:
            self._check_settled()

    def _check_settled(self) -> None:
        assert self.group.state is GroupState.STABLE
        facts = self._facts(_NAMES)
        subscribed = {name for client in self.clients for name in client.topics}
        wanted = {
            OwnedPartition(topic.topic_id, number)
            for name, topic in facts.items()
            if name in subscribed
            for number in range(topic.partitions)
        }
        owned = [part for client in self.clients for part in client.owned]
        assert sorted(owned) == sorted(wanted)
        names = {topic.topic_id: name for name, topic in facts.items()}
        for client in self.clients:
            assert {names[part.topic_id] for part in client.owned} <= client.topics
        if self.group.assignor == "uniform" and len({client.topics for client in self.clients}) == 1:
            loads = [len(client.owned) for client in self.clients]
            assert max(loads) - min(loads) <= 1
