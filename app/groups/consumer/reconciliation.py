"""The walk of a member to its target assignment: Kafka's ``CurrentAssignmentBuilder`` (KIP-848).

Members are immutable, so a step makes a new one. A partition goes to its next member
only when no other holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ...cluster.consumer_group_store import (
    NO_PARTITIONS,
    Assigned,
    ConsumerMember,
    MemberState,
    OwnedPartition,
)


def reconciled(
    member: ConsumerMember,
    *,
    assignment_epoch: int,
    owned: Collection[OwnedPartition] | None,
    is_free: Callable[[OwnedPartition], bool],
) -> ConsumerMember:
    """Return the member after its next step to ``member.target``; an equal one if it cannot step.

    ``owned`` is what it reports to have, None if it did not say. ``is_free`` returns whether
    no other member holds a partition.
    """
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return member
        # The target may have moved on meanwhile, so it need not be at the newest epoch yet.
        epoch += 1
    elif member.is_reconciled(assignment_epoch):
        return member
    kept = {part: since for part, since in member.assigned.items() if part in member.target}
    revoking = {part: since for part, since in member.assigned.items() if part not in member.target}
    if revoking and _owns_any(owned, revoking):
        return replace(
            member.at_epoch(epoch),
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    missing = [part for part in member.target if part not in kept]
    free = {part: assignment_epoch for part in missing if is_free(part)}
    return replace(
        member.at_epoch(assignment_epoch),
        state=MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED_PARTITIONS,
        assigned={**kept, **free},
        revoking=NO_PARTITIONS,
    )


def _owns_any(owned: Collection[OwnedPartition] | None, partitions: Assigned) -> bool:
    return owned is None or any(part in partitions for part in owned)
