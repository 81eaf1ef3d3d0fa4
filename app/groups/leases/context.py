"""The parts that giving out leases and ending them share."""

from __future__ import annotations

from dataclasses import dataclass

from ...broker.broker import Broker
from ...clock import Clock
from ..coordinator import GroupCoordinator
from .poll_member import PollMember
from .pool import LeasePools
from .positions import LeasePositions
from .redelivery import Redelivery


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseContext:
    """State that ``LeaseManager`` shares with all polls and settlements of a broker."""

    broker: Broker
    coordinator: GroupCoordinator
    clock: Clock
    pools: LeasePools
    member: PollMember
    positions: LeasePositions
    redelivery: Redelivery
