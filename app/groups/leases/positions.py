"""Positions of a group in the partitions that its polls are assigned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ...broker.broker import Broker
from ...errors import SteleError, TopicError
from ...turns import Turns
from ...work_budget import take_turn
from ..base.consumer_protocol import AssignedPartition
from ..base.messages import Membership, OffsetToCommit
from ..coordinator import GroupCoordinator
from .lease import LeasedPartition, Skipped

logger = logging.getLogger(__name__)

_PARTITIONS_PER_LOOK = 50


class LeasePositions:
    """Reads positions from committed offsets and the logs."""

    def __init__(self, broker: Broker, coordinator: GroupCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator

    async def next_offsets(
        self,
        group: str,
        membership: Membership,
        parts: Sequence[AssignedPartition],
        *,
        start: str,
        turns: Turns,
        look: Callable[[AssignedPartition, int, int], None],
    ) -> tuple[dict[AssignedPartition, int], list[Skipped]]:
        """Return the next offset of each of ``parts``, in their order, and what retention deleted before them.

        Polls change offsets meanwhile, so ``look`` is called with each partition, its next offset and how many offsets
        follow, before anything else can happen.

        ``start`` is ``earliest`` or ``latest``: where a partition without a committed offset
        begins. Partitions that no longer exist are left out, and those whose committed offset a
        transaction may replace: another client has staged the acknowledgement of its records there.
        """
        positions: dict[AssignedPartition, int] = {}
        skipped: list[Skipped] = []
        starts: list[OffsetToCommit] = []
        await self._broker.refresh(parts)
        await self._coordinator.settle_ended(group)
        for index, part in enumerate(parts):
            if index % _PARTITIONS_PER_LOOK == 0:
                # Every poll that waits looks at all partitions again when one of them is free.
                await take_turn(turns)
            try:
                state = self._broker.log_state(*part)
            except TopicError:
                # Deleted; the next generation does not assign it.
                continue
            (committed,) = self._coordinator.committed(group, [part], require_stable=True)
            if committed.error is not None:
                continue
            position = committed.offset
            if position < 0:
                position = state.log_start_offset
                if start == "latest":
                    position = state.last_stable_offset
                    starts.append(OffsetToCommit(topic=part.topic, partition=part.partition, offset=position))
            elif position < state.log_start_offset:
                skipped.append(
                    Skipped(
                        topic=part.topic,
                        partition=part.partition,
                        offset=position,
                        next_offset=state.log_start_offset,
                    )
                )
                position = state.log_start_offset
            position = positions[part] = min(position, state.high_watermark)
            look(part, position, state.last_stable_offset - position)
        if starts:
            # The group begins here even if records arrive before its next poll.
            await self._coordinator.commit_assigned(membership, group, starts)
        return positions, skipped

    async def pass_over(
        self, group: str, membership: Membership, positions: Mapping[AssignedPartition, int]
    ) -> None:
        """Commit positions of partitions that moved over offsets without records.

        Nothing depends on it but the lag of the group: the next poll passes them again if it fails.
        """
        offsets = [
            OffsetToCommit(topic=part.topic, partition=part.partition, offset=position)
            for part, position in positions.items()
        ]
        try:
            await self._coordinator.commit_assigned(membership, group, offsets)
        except SteleError as error:
            logger.info("group %r: positions without records are not committed: %s", group, error)

    def is_next(self, group: str, part: LeasedPartition) -> bool:
        """True if the first record of ``part`` is the next one that the group handles."""
        try:
            state = self._broker.log_state(part.topic, part.partition)
        except TopicError:
            return False
        (committed,) = self._coordinator.committed(group, [part.key])
        position = max(committed.offset, state.log_start_offset)
        return part.offset == position and part.next_offset <= state.high_watermark
