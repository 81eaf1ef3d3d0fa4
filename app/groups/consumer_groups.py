"""The interface of consumer groups for listeners (KIP-848, ADR-0042)."""

from __future__ import annotations

from ..cluster.consumer_group_store import JOINING
from ..errors import (
    GroupNotFound,
    GroupOfOtherType,
    InvalidRegularExpression,
    SteleError,
    UnsupportedAssignor,
)
from ..linear_regex import InvalidPattern, LinearRegex
from ..work_budget import WorkBudget
from .base.assignors import CONSUMER_ASSIGNORS
from .base.checks import check_group_id, check_member_size
from .consumer.commits import check_fetch
from .consumer.live_group import Resolved, Sees
from .consumer.messages import ConsumerGroupDescription, ConsumerHeartbeat, ConsumerHeartbeatAnswer
from .table import GroupTable


class ConsumerGroups:
    """Serves the consumer groups of ``table``.

    Every call may raise as those of ``GroupCoordinator``.
    """

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    async def heartbeat(self, request: ConsumerHeartbeat, *, sees: Sees) -> ConsumerHeartbeatAnswer:
        """Let a member join, stay or leave. Returns when what the answer says is durable.

        ``sees`` returns whether the client may see a topic; a regular expression matches no others.

        Raises:
            InvalidGroupId, InvalidRequest, UnsupportedAssignor, InvalidRegularExpression: change the request.
            GroupNotFound: there is no such group; join with epoch 0.
            GroupOfOtherType: its members use another protocol.
            UnknownMember, FencedMemberEpoch: give up all partitions, and join again with epoch 0.
            UnreleasedInstance, FencedInstance: another member has the instance id.
            GroupFull, TooManyGroups: a limit of the broker is reached.
            GroupStoreFailed: repeat the heartbeat.
        """
        self._table.check_open()
        request.check()
        check_group_id(request.group)
        self._check_size(request)
        if request.assignor is not None and request.assignor not in CONSUMER_ASSIGNORS:
            raise UnsupportedAssignor(request.group, request.assignor, supported=list(CONSUMER_ASSIGNORS))
        resolved = await self._resolved(request, sees)
        # Nothing awaits from here to the end of the heartbeat.
        self._table.check_open()
        live = self._table.groups.get(request.group)
        if live is None and request.epoch != JOINING:
            raise GroupNotFound(request.group)
        if live is None:
            live = self._table.existing_or_new(request.group)
        consumer = (
            live.joined_consumer_group(request.instance_id) if request.epoch == JOINING else live.consumer
        )
        if consumer is None:
            raise GroupOfOtherType(request.group, live.type)
        if resolved is not None:
            consumer.learn(resolved)
        try:
            answered = consumer.heartbeat(request)
        except SteleError:
            # If the member was to be the first of this protocol, the group is a classic one again.
            consumer.write()
            raise
        finally:
            self._table.keep(live)
        return await answered

    def _check_size(self, request: ConsumerHeartbeat) -> None:
        """Raises ``InvalidRequest``."""
        check_member_size(
            self._table.settings,
            (
                ("member id", request.member_id),
                ("instance id", request.instance_id or ""),
                ("rack id", request.rack_id or ""),
                ("client id", request.client_id),
                ("regular expression", request.regex or ""),
                *(("topic", topic) for topic in request.topics or ()),
            ),
        )

    async def _resolved(self, request: ConsumerHeartbeat, sees: Sees) -> Resolved | None:
        """Match the regular expression of a member, if that is due.

        With all topics that the member may see.
        """
        live = self._table.groups.get(request.group)
        consumer = None if live is None else live.consumer
        pattern = request.regex if consumer is None else consumer.regex_to_resolve(request)
        if not pattern or request.epoch < JOINING:
            return None
        try:
            compiled = LinearRegex(pattern)
            topics = await self._matching(compiled, sees)
        except InvalidPattern as error:
            raise InvalidRegularExpression(request.group, pattern, str(error)) from error
        return Resolved(
            pattern=pattern,
            compiled=compiled,
            sees=sees,
            topics=frozenset(topics),
            at_s=self._table.scheduler.time(),
        )

    async def _matching(self, compiled: LinearRegex, sees: Sees) -> set[str]:
        """Return the topics that an expression matches now. Raises ``InvalidPattern``."""
        budget = WorkBudget()
        looked_at: set[str] = set()
        matching: set[str] = set()
        # Again for topics that were created during a pause.
        while new := set(self._table.topic_names()) - looked_at:
            visible: list[str] = []
            for name in sorted(new):
                await budget.visit()
                if sees(name):
                    visible.append(name)
            matching.update(await compiled.matching(visible))
            looked_at |= new
        return matching

    def check_fetch(self, group: str, member_id: str | None, epoch: int) -> None:
        """Check the epoch of a member that fetches offsets.

        Raises ``UnknownMember``, ``StaleMemberEpoch``.
        """
        self._table.check_open()
        live = self._table.groups.get(group)
        if live is not None and live.consumer is not None:
            check_fetch(live.consumer.group, member_id, epoch)

    def describe(self, group: str) -> ConsumerGroupDescription:
        """Raises ``InvalidGroupId``, ``GroupNotFound``, ``GroupOfOtherType``."""
        check_group_id(group)
        live = self._table.existing(group)
        consumer = live.consumer
        if consumer is None:
            raise GroupOfOtherType(group, live.type)
        described = consumer.group
        return ConsumerGroupDescription(
            group=group,
            state=described.state,
            epoch=described.epoch,
            assignment_epoch=described.assignment_epoch,
            assignor=described.assignor or next(iter(CONSUMER_ASSIGNORS)),
            members=[described.members[member_id] for member_id in sorted(described.members)],
            names={facts.topic_id: name for name, facts in self._table.topic_facts(described.topics).items()},
        )
