"""All that a door may call about groups, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from .coordinator import GroupCoordinator
from .lease_desk import LeaseDesk


@dataclass(frozen=True, slots=True)
class Groups:
    coordinator: GroupCoordinator
    leases: LeaseDesk

    def begin_close(self) -> None:
        """Refuse what comes from now on, and end the waits."""
        self.coordinator.begin_close()
        self.leases.close()

    async def close(self) -> None:
        await self.coordinator.close()
