"""What a consumer group must know of all its members, kept as each of them changes.

A heartbeat then looks at the member that sent it, however many others there are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...cluster.consumer_group_store import ConsumerMember, MemberState, OwnedPartition
from ..base.client_ids import ClientIds
from ..base.tally import Tally


@dataclass(slots=True)
class MemberIndex:
    """``holders`` are the member ids by partition, ``static`` by instance id.

    ``topics`` and ``regexes`` count the members that subscribe so, ``classic`` those of the classic protocol,
    ``offers`` the classic members that offer each protocol. ``stable`` counts the members without
    partitions to give up or to wait for, by their epoch. ``managed`` are the ids of the managed members,
    ``clients`` the same by client id.

    ``may_step``: since it was cleared, partitions became free or a managed member joined.
    """

    holders: dict[OwnedPartition, str] = field(default_factory=dict[OwnedPartition, str])
    static: dict[str, str] = field(default_factory=dict[str, str])
    topics: Tally[str] = field(default_factory=Tally[str])
    regexes: Tally[str] = field(default_factory=Tally[str])
    classic: int = 0
    offers: Tally[str] = field(default_factory=Tally[str])
    stable: Tally[int] = field(default_factory=Tally[int])
    managed: dict[str, None] = field(default_factory=dict[str, None])
    clients: ClientIds = field(default_factory=ClientIds)
    may_step: bool = field(default=False, compare=False)

    def replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Note what a member became; None before it joined, and after it left."""
        self._replace_partitions(before, after)
        self._replace_subscription(before, after)
        if before is not None:
            if before.instance_id is not None:
                self.static.pop(before.instance_id, None)
            if before.state is MemberState.STABLE:
                self.stable.take((before.epoch,))
        if after is not None:
            if after.instance_id is not None:
                self.static[after.instance_id] = after.member_id
            if after.state is MemberState.STABLE:
                self.stable.add((after.epoch,))
        if before is not None and _is_managed(before):
            self.clients.take(before.client_id, before.member_id)
        if after is not None and _is_managed(after):
            self.clients.add(after.client_id, after.member_id)
        if before is None or after is None or before.classic is not after.classic:
            self._replace_protocols(before, after)

    def _replace_partitions(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None and after is not None and _has_same_partitions(before, after):
            return
        if before is not None:
            for part in (*before.assigned, *before.revoking):
                del self.holders[part]
        if after is not None:
            for part in (*after.assigned, *after.revoking):
                assert part not in self.holders, f"{part} has two members"
                self.holders[part] = after.member_id
        if before is not None and any(
            part not in self.holders for part in (*before.assigned, *before.revoking)
        ):
            self.may_step = True

    def _replace_subscription(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is None or after is None or before.topics is not after.topics:
            if before is not None:
                self.topics.take(before.topics)
            if after is not None:
                self.topics.add(after.topics)
        if before is not None and before.regex:
            self.regexes.take((before.regex,))
        if after is not None and after.regex:
            self.regexes.add((after.regex,))

    def _replace_protocols(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        if before is not None and before.classic is not None:
            self.classic -= 1
            self.offers.take(before.classic.protocol_names)
            self.managed.pop(before.member_id, None)
        if after is not None and after.classic is not None:
            self.classic += 1
            self.offers.add(after.classic.protocol_names)
            if after.classic.is_managed:
                self.managed[after.member_id] = None
                self.may_step = True

    def common_protocols(self, besides: Collection[ConsumerMember]) -> set[str] | None:
        """Return the protocols that all classic members but ``besides`` offer; None without any such member."""
        left_out = [member.classic.protocol_names for member in besides if member.classic is not None]
        others = self.classic - len(left_out)
        if not others:
            return None
        return {
            name
            for name, count in self.offers.items()
            if count - sum(name in names for names in left_out) == others
        }


def _is_managed(member: ConsumerMember) -> bool:
    return member.classic is not None and member.classic.is_managed


def _has_same_partitions(before: ConsumerMember, after: ConsumerMember) -> bool:
    return before.assigned is after.assigned and before.revoking is after.revoking
