"""Export open transactions, their outcomes, and the age of the oldest ones.

The oldest ones hold back last stable offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...monitor.sampler import StableOffsetHolds
from ...transactions.messages import TransactionCounts


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
        ("stele_transactional_ids", "Transactional ids known to the broker.", counts.ids),
        ("stele_transactions_open", "Open transactions.", counts.open),
        (
            "stele_transactions_oldest_seconds",
            "Age of the oldest open transaction; 0 without one.",
            counts.oldest_ms / 1000,
        ),
        (
            "stele_transactions_hanging",
            "Hanging transactions: open in a partition, but unknown to the coordinator; counted per partition.",
            holds.hanging,
        ),
        (
            "stele_last_stable_offset_held_partitions",
            "Partitions whose last stable offset is held back by an open transaction.",
            holds.partitions,
        ),
        (
            "stele_last_stable_offset_hold_seconds",
            "Age of the oldest transaction that holds back a partition; 0 without one.",
            holds.oldest_ms / 1000,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=gauge)
