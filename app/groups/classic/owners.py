"""Which member has claimed which partition (ADR-0017), found by partition and by member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..base.consumer_protocol import AssignedPartition


class Owners(Mapping[AssignedPartition, str]):
    """Member ids by the partition that they claimed."""

    def __init__(self) -> None:
        self._members: dict[AssignedPartition, str] = {}
        # So that a member that leaves costs what it owned, and not what all own.
        self._parts: dict[str, set[AssignedPartition]] = {}

    def __getitem__(self, part: AssignedPartition) -> str:
        return self._members[part]

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def members(self) -> frozenset[str]:
        """The ids of the members that own a partition."""
        return frozenset(self._parts)

    def of(self, member_id: str) -> frozenset[AssignedPartition]:
        """Return what a member owns."""
        return frozenset(self._parts.get(member_id, ()))

    def claim(self, part: AssignedPartition, member_id: str) -> None:
        """Make a member the owner of a partition that has none."""
        assert part not in self._members
        self._members[part] = member_id
        self._parts.setdefault(member_id, set()).add(part)

    def release(self, part: AssignedPartition) -> None:
        """End the ownership of a partition."""
        member_id = self._members.pop(part)
        parts = self._parts[member_id]
        parts.remove(part)
        if not parts:
            del self._parts[member_id]

    def release_all(self, member_id: str) -> None:
        """End what a member owns."""
        for part in self._parts.pop(member_id, ()):
            del self._members[part]

    def rename(self, member_id: str, new_id: str) -> None:
        """Give what a member owns to its new id."""
        parts = self._parts.pop(member_id, set())
        if parts:
            self._parts[new_id] = parts
            self._members.update(dict.fromkeys(parts, new_id))

    def keep(self, is_kept: Callable[[AssignedPartition, str], bool]) -> None:
        """End each ownership for which ``is_kept`` returns False."""
        for part, member_id in list(self._members.items()):
            if not is_kept(part, member_id):
                self.release(part)
