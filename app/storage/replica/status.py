"""What operators see of a replica."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..shared.store.block_cache import CacheCounts

# ``starting``: the bucket is compared with the directory. ``copying``: the first cut of this start is under way.
# ``replicating``: cuts are written. ``failing``: the bucket refuses requests, which are repeated. ``overtaken``: another
# broker writes cuts, and this one has stopped. ``stopped``: the broker shuts down, or an error ended it.
ReplicaPhase = Literal["starting", "copying", "replicating", "failing", "overtaken", "stopped"]


@dataclass(slots=True, kw_only=True)
class ReplicaStatus:
    """``lag_ms`` is the most that would be lost now: the time since the moment up to which the bucket has all changes.

    ``cut_ms`` and ``sequence`` are of the newest cut, and ``generation`` is that of this broker: -1 before the bucket has
    answered, or without a cut. ``oldest_ms`` is the earliest moment that a restore can go back to, -1 until it is known.
    ``replica_bytes`` is the size of the objects that the newest cut names, ``retained_bytes`` of those that only earlier
    cuts name. ``cuts``, ``objects``, ``uploaded_bytes``, ``deleted_objects`` and ``failed_requests`` count since the start.
    ``remote`` counts reads of segments that are in the bucket alone. ``problem`` is the last error while it lasts.
    """

    url: str
    phase: ReplicaPhase = "starting"
    generation: int = -1
    sequence: int = -1
    cut_ms: int = -1
    oldest_ms: int = -1
    lag_ms: int = 0
    replica_bytes: int = 0
    retained_bytes: int = 0
    cuts: int = 0
    objects: int = 0
    uploaded_bytes: int = 0
    deleted_objects: int = 0
    failed_requests: int = 0
    remote: CacheCounts = field(default_factory=CacheCounts)
    problem: str | None = None
