"""What a user may choose about a replica, and its limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOptions:
    """``interval_ms`` between cuts; ``retention_ms`` is how far back a restore can go.

    An object of new bytes has up to ``object_bytes``, one of a sealed segment up to ``segment_bytes``, and ``uploads`` of
    them are under way at a time. A run shorter than ``small_run_bytes`` is written again together with what follows it.
    After ``base_cuts`` cuts, or when these have become longer than it, there is another base. A request to the bucket may
    take ``request_timeout_ms``, and is repeated after ``retry_ms``, then after up to 16 times that. A shutdown waits for
    its last cut for ``close_timeout_ms``, and a start for the bucket for ``open_timeout_ms``. Every ``clean_interval_ms``
    what is too old is deleted.
    """

    interval_ms: int = 1_000
    retention_ms: int = 24 * 3600 * 1000
    object_bytes: int = 16 << 20
    segment_bytes: int = 64 << 20
    uploads: int = 4
    small_run_bytes: int = 1 << 20
    base_cuts: int = 1_000
    base_bytes_min: int = 1 << 20
    request_timeout_ms: int = 60_000
    retry_ms: int = 200
    open_timeout_ms: int = 10_000
    close_timeout_ms: int = 10_000
    clean_interval_ms: int = 60_000
