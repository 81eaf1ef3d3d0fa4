"""All that a listener may call about groups, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from .coordinator import GroupCoordinator
from .lease_manager import LeaseManager
from .share_queue import ShareQueue


@dataclass(frozen=True, slots=True)
class Groups:
    coordinator: GroupCoordinator
    leases: LeaseManager
    queue: ShareQueue

    def begin_close(self) -> None:
        """Refuse all calls from now on, and end the polls that wait."""
        self.coordinator.begin_close()
        self.leases.close()

    async def close(self) -> None:
        await self.coordinator.close()
