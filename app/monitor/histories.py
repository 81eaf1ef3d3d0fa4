"""Keep the samples of the last hour: totals of the broker, and the lag of groups."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..groups.lag import PartitionLag

# Samples kept: one hour at the default interval.
POINTS_MAX = 720
# Partitions of groups whose lag is kept over time, with 8 bytes per point: 6 MB at most.
LAG_SERIES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Totals at one moment; sync percentiles are in ms, since the previous point."""

    at_ms: int
    # From an arbitrary start; measures the time between two points.
    monotonic_ms: int
    records_in: int
    bytes_in: int
    bytes_out: int
    # In the order of the listeners.
    listener_bytes_in: tuple[int, ...]
    listener_bytes_out: tuple[int, ...]
    listener_connections: tuple[int, ...]
    syncs: int
    sync_p50_ms: float | None
    sync_p99_ms: float | None
    log_bytes: int
    free_bytes: int | None

    def ms_since(self, earlier: Point) -> int:
        """Return the ms since ``earlier``, at least 1."""
        return max(self.monotonic_ms - earlier.monotonic_ms, 1)


class PointHistory:
    """The last ``POINTS_MAX`` points."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)

    def add(self, point: Point) -> None:
        self._points.append(point)

    @property
    def newest(self) -> Point | None:
        return self._points[-1] if self._points else None

    def last(self, count: int) -> list[Point]:
        """Return at most ``count`` points, newest last."""
        return list(self._points)[-count:]

    def rates(self, over_ms: int = 10_000) -> tuple[Point, Point] | None:
        """Return two points about ``over_ms`` apart, newer one last; None if there are not two."""
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
        """Return the newest point that has syncs, None if there is none."""
        return next((point for point in reversed(self._points) if point.sync_p50_ms is not None), None)


class LagHistory:
    """Lag over time, for at most ``LAG_SERIES_MAX`` partitions of groups with series."""

    def __init__(self) -> None:
        # Times of the rounds, and the lags per group and partition, newest last.
        self._times: deque[int] = deque(maxlen=POINTS_MAX)
        self._series: dict[str, dict[tuple[str, int], array[int]]] = {}

    def keep(
        self, at_ms: int, groups: Collection[str], measured: Mapping[str, Sequence[PartitionLag]]
    ) -> None:
        """Add one round.

        Groups other than ``groups`` are dropped. Groups that were not ``measured``
        repeat their last lag. The method does not await, so that all series always
        have the same number of points.
        """
        self._times.append(at_ms)
        for gone in self._series.keys() - groups:
            del self._series[gone]
        room = LAG_SERIES_MAX - sum(map(len, self._series.values()))
        for name in groups:
            lags = measured.get(name)
            series = self._series.setdefault(name, {})
            if lags is None:
                # Not measured in this round.
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
        """Return ``(times in ms, [(topic, partition, lags)])``.

        A lag is None where it was not known yet.
        """
        times = list(self._times)
        series: list[tuple[str, int, list[int | None]]] = []
        for (topic, partition), kept in sorted(self._series.get(group, {}).items()):
            lags: list[int | None] = [None] * (len(times) - len(kept))
            series.append((topic, partition, lags + list(kept)))
        return times, series
