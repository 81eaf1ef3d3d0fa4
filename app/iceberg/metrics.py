"""Metrics of the Iceberg tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

STATES = ("starting", "writing", "level", "failed", "standby")
_GAUGES = (
    ("rows", "stele_iceberg_rows", "Rows of the newest snapshot."),
    ("error_rows", "stele_iceberg_error_rows", "Records that do not fit, which the table of errors has."),
    (
        "lag_records",
        "stele_iceberg_lag_records",
        "Offsets that were visible at the last look and are not written yet.",
    ),
    ("lag_seconds", "stele_iceberg_lag_seconds", "Time since everything visible was written; 0 if it is."),
)
_COUNTERS = (
    ("commits", "stele_iceberg_commits", "Snapshots committed since the process started."),
    ("failures", "stele_iceberg_failures", "Turns that failed since the process started."),
    ("lost_records", "stele_iceberg_lost_records", "Offsets that were deleted before they were written."),
)


class IcebergCollector(Collector):
    """Collects from ``tables``, which returns the status of each topic that is a table."""

    def __init__(self, tables: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._tables = tables

    def describe(self) -> Iterable[Metric]:
        # There may be no table yet when the registry calls this.
        return []

    def collect(self) -> Iterable[Metric]:
        tables = self._tables()
        if not tables:
            return
        state = GaugeMetricFamily(
            "stele_iceberg_state", "1 for the current state of the table.", labels=("topic", "state")
        )
        families: list[tuple[str, GaugeMetricFamily | CounterMetricFamily]] = [
            (field, GaugeMetricFamily(name, text, labels=("topic",))) for field, name, text in _GAUGES
        ]
        families += [
            (field, CounterMetricFamily(name, text, labels=("topic",))) for field, name, text in _COUNTERS
        ]
        for status in tables:
            for each in STATES:
                state.add_metric((status["topic"], each), float(status["state"] == each))
            for field, family in families:
                if status[field] is not None:
                    family.add_metric((status["topic"],), status[field])
        yield state
        yield from (family for _, family in families)
