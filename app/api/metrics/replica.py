"""Export how far the replica in a bucket has come, and what it takes there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...storage.replica.status import ReplicaPhase, ReplicaStatus


def replica_metrics(status: ReplicaStatus) -> Iterable[Metric]:
    """Read the status of a replica, which is plain numbers."""
    state = GaugeMetricFamily(
        "stele_replica_state", "1 for the current state of the replica, otherwise 0.", labels=("state",)
    )
    for name in get_args(ReplicaPhase):
        state.add_metric((name,), float(status.phase == name))
    yield state
    for name, text, gauge in (
        (
            "stele_replica_lag_seconds",
            "Age of the oldest change that the bucket may lack.",
            status.lag_ms / 1000,
        ),
        (
            "stele_replica_newest_cut_timestamp_seconds",
            "Unix time of the newest cut; 0 without one.",
            max(status.cut_ms, 0) / 1000,
        ),
        (
            "stele_replica_oldest_cut_timestamp_seconds",
            "Unix time to which a restore can go back; 0 until it is known.",
            max(status.oldest_ms, 0) / 1000,
        ),
        (
            "stele_replica_generation",
            "Starts of brokers that have written the replica, this one included; 0 until the bucket has answered.",
            max(status.generation, 0),
        ),
        (
            "stele_replica_bytes",
            "Size of the objects that a restore of the newest cut reads.",
            status.replica_bytes,
        ),
        (
            "stele_replica_retained_bytes",
            "Size of the objects that only restores to earlier moments read.",
            status.retained_bytes,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=gauge)
    for name, text, value in (
        ("stele_replica_cuts", "Cuts that this broker has written.", status.cuts),
        ("stele_replica_objects", "Objects that this broker has stored, cuts excluded.", status.objects),
        (
            "stele_replica_uploaded_bytes",
            "Bytes that this broker has stored, cuts included.",
            status.uploaded_bytes,
        ),
        (
            "stele_replica_deleted_objects",
            "Objects that this broker has deleted because no restore needs them.",
            status.deleted_objects,
        ),
        (
            "stele_replica_failed_requests",
            "Requests to the bucket that failed and were repeated.",
            status.failed_requests,
        ),
        (
            "stele_replica_read_bytes",
            "Bytes that were read from the bucket for readers of tiered segments.",
            status.remote.loaded_bytes,
        ),
        (
            "stele_replica_failed_reads",
            "Requests to the bucket for readers of tiered segments that failed.",
            status.remote.failed,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)
    blocks = CounterMetricFamily(
        "stele_replica_cache_blocks",
        "Blocks of tiered segments requested by readers, by cache hit or miss.",
        labels=("outcome",),
    )
    blocks.add_metric(("hit",), status.remote.hits)
    blocks.add_metric(("miss",), status.remote.misses)
    yield blocks
