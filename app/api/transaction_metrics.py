"""Export open transactions, their outcomes, and the age of the oldest ones.

The oldest ones hold back last stable offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..monitor.sampler import StableOffsetHolds
from ..transactions.messages import TransactionCounts


def transaction_metrics(counts: TransactionCounts, holds: StableOffsetHolds) -> Iterable[Metric]:
    """Read the coordinator's totals and the sampled last stable offsets."""
    for name, text, value in (
        ("stele_transactions_committed", "Transactions committed.", counts.committed),
        (
            "stele_transactions_aborted",
            "Transactions aborted, those that timed out included.",
            counts.aborted,
        ),
        (
            "stele_transactions_timed_out",
            "Transactions aborted because they were open for longer than their timeout.",
            counts.timed_out,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)
    for name, text, gauge in (
        ("stele_transactional_ids", "Transactional ids that the broker knows.", counts.ids),
        ("stele_transactions_open", "Open transactions.", counts.open),
        (
            "stele_transactions_oldest_seconds",
            "Time for which the oldest open transaction has been open; 0 if none is.",
            counts.oldest_ms / 1000,
        ),
        (
            "stele_transactions_hanging",
            "Transactions open in a partition that the coordinator does not know, per partition.",
            holds.hanging,
        ),
        (
            "stele_last_stable_offset_held_partitions",
            "Partitions whose last stable offset is held back by an open transaction.",
            holds.partitions,
        ),
        (
            "stele_last_stable_offset_hold_seconds",
            "Time for which the oldest transaction that holds back a partition has been open; 0 if none does.",
            holds.oldest_ms / 1000,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=gauge)
