"""Metrics of the CDC connectors.

Tables may be labels, because their number is set by the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_STATES = ("connecting", "copying", "streaming", "waiting", "stopped", "failed", "gap")
_COUNTERS = (
    ("events", "stele_cdc_records", "Records stored, including those of initial copies."),
    ("repeated", "stele_cdc_repeated", "Changes that PostgreSQL sent again and that were stored already."),
    ("transactions", "stele_cdc_transactions", "Committed transactions processed."),
    ("notifications", "stele_cdc_notifications", "Notifications processed."),
    ("messages", "stele_cdc_messages", "Messages of pg_logical_emit_message processed."),
    ("refused_messages", "stele_cdc_refused_messages", "Messages kept in the topic of refused messages."),
    ("failures", "stele_cdc_failures", "Failures of the connector, each followed by a restart."),
)
_TABLE_COUNTERS = (
    ("copied", "stele_cdc_table_copied_rows", "Rows copied by initial copies."),
    ("changes", "stele_cdc_table_changes", "Changes processed."),
)


class CdcCollector(Collector):
    """Collects from ``connectors``, which returns the documents of ``GET /v1/cdc``."""

    def __init__(self, connectors: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._connectors = connectors

    def describe(self) -> Iterable[Metric]:
        # There may be no connector yet when the registry calls this.
        return []

    def collect(self) -> Iterable[Metric]:
        documents = [document for document in self._connectors() if "events" in document]
        if not documents:
            return
        state = GaugeMetricFamily(
            "stele_cdc_state", "1 for the current state of the connector.", labels=("slot", "state")
        )
        lag = GaugeMetricFamily(
            "stele_cdc_lag_bytes", "Bytes of WAL that are written and not yet confirmed.", labels=("slot",)
        )
        commit = GaugeMetricFamily(
            "stele_cdc_last_commit_seconds",
            "Commit time of the last processed transaction, in seconds since 1970-01-01 UTC.",
            labels=("slot",),
        )
        counters = [CounterMetricFamily(name, text, labels=("slot",)) for _, name, text in _COUNTERS]
        tables = [
            CounterMetricFamily(name, text, labels=("slot", "table")) for _, name, text in _TABLE_COUNTERS
        ]
        for document in documents:
            slot: str = document["slot"]
            for name in _STATES:
                state.add_metric((slot, name), float(document["state"] == name))
            if document["lag_bytes"] is not None:
                lag.add_metric((slot,), document["lag_bytes"])
            commit.add_metric((slot,), document["commit_ms"] / 1000)
            for counter, (field, _, _) in zip(counters, _COUNTERS, strict=True):
                counter.add_metric((slot,), document[field])
            for table, counts in document["tables"].items():
                for family, (field, _, _) in zip(tables, _TABLE_COUNTERS, strict=True):
                    family.add_metric((slot, table), counts[field])
        yield from (state, lag, commit, *counters, *tables)
