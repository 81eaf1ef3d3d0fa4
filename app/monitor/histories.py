"""Samples of the last hour: totals of the broker, and the lag of consumer groups."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..groups.lag import PartitionLag

# Samples that are kept: an hour of the default interval.
POINTS_MAX = 720
# Lag over time is kept for so many partitions of groups, with 8 bytes per point: 6 MB at most.
LAG_SERIES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Totals at one moment; the times of the syncs are those since the point before, in ms."""

    at_ms: int
    # From an arbitrary start: what the time between two points is measured with.
    monotonic_ms: int
    records_in: int
    bytes_in: int
    bytes_out: int
    # By the order of the listeners.
    listener_bytes_in: tuple[int, ...]
    listener_bytes_out: tuple[int, ...]
    listener_connections: tuple[int, ...]
    syncs: int
    sync_p50_ms: float | None
    sync_p99_ms: float | None
    log_bytes: int
    free_bytes: int | None

    def ms_since(self, earlier: Point) -> int:
        return max(self.monotonic_ms - earlier.monotonic_ms, 1)


class PointHistory:
    """The last ``POINTS_MAX`` points, the newest last."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, point: Point) -> None:
        self._points.append(point)

    @property
    def newest(self) -> Point | None:
        return self._points[-1] if self._points else None

    def last(self, count: int) -> list[Point]:
        """At most ``count`` points, the newest last."""
        return list(self._points)[-count:]

    def rates(self, over_ms: int = 10_000) -> tuple[Point, Point] | None:
        """Two points about ``over_ms`` apart, the newer last; None before there are two."""
        if len(self._points) < 2:
            return None
        newest = self._points[-1]
        oldest = self._points[-2]
        for point in reversed(self._points):
            oldest = point if point is not newest else oldest
            if newest.ms_since(point) >= over_ms:
                break
        return oldest, newest

    def last_with_syncs(self) -> Point | None:
        """The newest point since whose predecessor something was synced."""
        return next((point for point in reversed(self._points) if point.sync_p50_ms is not None), None)


class LagHistory:
    """Lag over time of the groups that have series of their own: ``LAG_SERIES_MAX`` series at most."""

    def __init__(self) -> None:
        # Times of the rounds, and for each group and partition its lags, the newest last.
        self._times: deque[int] = deque(maxlen=POINTS_MAX)
        self._series: dict[str, dict[tuple[str, int], array[int]]] = {}

    def keep(
        self, at_ms: int, groups: Collection[str], measured: Mapping[str, Sequence[PartitionLag]]
    ) -> None:
        """Add one round: ``groups`` are kept, others are forgotten; those not ``measured`` repeat their last lag.

        All at once, so that nobody sees one series with more points than another.
        """
        self._times.append(at_ms)
        for gone in self._series.keys() - groups:
            del self._series[gone]
        room = LAG_SERIES_MAX - sum(map(len, self._series.values()))
        for name in groups:
            lags = measured.get(name)
            series = self._series.setdefault(name, {})
            if lags is None:
                # It was not its turn.
                for kept in series.values():
                    kept.append(kept[-1])
            else:
                for gone in series.keys() - {(lag.topic, lag.partition) for lag in lags}:
                    del series[gone]
                    room += 1
                for lag in lags:
                    kept = series.get((lag.topic, lag.partition))
                    if kept is None:
                        if room <= 0:
                            continue
                        room -= 1
                        kept = series[lag.topic, lag.partition] = array("q")
                    kept.append(lag.lag)
            for kept in series.values():
                del kept[:-POINTS_MAX]

    def of_group(self, group: str) -> tuple[list[int], list[tuple[str, int, list[int | None]]]]:
        """``(times in ms, [(topic, partition, lags)])``; None where a partition was not known yet."""
        times = list(self._times)
        series: list[tuple[str, int, list[int | None]]] = []
        for (topic, partition), kept in sorted(self._series.get(group, {}).items()):
            lags: list[int | None] = [None] * (len(times) - len(kept))
            series.append((topic, partition, lags + list(kept)))
        return times, series
