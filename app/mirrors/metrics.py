"""Metrics of the mirrors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

STATES = ("starting", "copying", "level", "paused", "failed")


class MirrorCollector(Collector):
    """Collects from ``mirrors``, which returns their status."""

    def __init__(self, mirrors: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._mirrors = mirrors

    def describe(self) -> Iterable[Metric]:
        # There may be no mirror yet when the registry calls this.
        return []

    def collect(self) -> Iterable[Metric]:
        mirrors = self._mirrors()
        if not mirrors:
            return
        state = GaugeMetricFamily(
            "stele_mirror_state", "1 for the current state of the mirror.", labels=("mirror", "state")
        )
        lag = GaugeMetricFamily(
            "stele_mirror_lag_records", "Offsets of the source that are not copied yet.", labels=("mirror",)
        )
        delay = GaugeMetricFamily(
            "stele_mirror_lag_seconds",
            "Time since a copy lacks what its source had then, also while the source does not answer.",
            labels=("mirror",),
        )
        stopped = GaugeMetricFamily(
            "stele_mirror_stopped_partitions",
            "Partitions that wait for a person: see the status of the mirror.",
            labels=("mirror",),
        )
        copied = CounterMetricFamily(
            "stele_mirror_copied_bytes",
            "Bytes of batches copied since the process started.",
            labels=("mirror",),
        )
        for status in mirrors:
            name = status["definition"].name
            for each in STATES:
                state.add_metric((name, each), float(status["state"] == each))
            for family, field in (
                (lag, "lag"),
                (delay, "lag_seconds"),
                (stopped, "stopped"),
                (copied, "copied_bytes"),
            ):
                if status.get(field) is not None:
                    family.add_metric((name,), status[field])
        yield from (state, lag, delay, stopped, copied)
