"""Groups of the target that have had members there."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ..errors import SourceError
from ..source import reads
from ..source.cluster import Source
from ..source.reads import Committed

# So long a list of them counts.
_LISTED_S = 10.0


class JoinedGroups:
    """Knows which groups have had members, and so may have got further than their offsets here."""

    def __init__(self, cluster: Source) -> None:
        self._cluster = cluster
        # By group.
        self._coordinators: Mapping[str, int] = {}
        self._listed_s = -_LISTED_S

    async def committed(self, group: str) -> Committed:
        """Return what a group has committed there; nothing if it has never had members.

        Raises ``SourceError``.
        """
        now_s = time.monotonic()
        if now_s - self._listed_s >= _LISTED_S:
            if not self._cluster.brokers:
                await reads.topics(self._cluster, ())
            self._coordinators = {
                one.name: broker
                for broker in self._cluster.brokers
                for one in await reads.groups(self._cluster, broker)
                if one.has_joined
            }
            self._listed_s = now_s
        broker = self._coordinators.get(group)
        if broker is None:
            return {}
        found = (await reads.committed(self._cluster, broker, [group])).get(group)
        if found is None:
            # It may have another coordinator by now.
            self._listed_s = -_LISTED_S
            raise SourceError(f"the offsets of group {group!r} in the target are not known now")
        return found
