"""Histories keep a bounded number of samples, and pair them for rates."""

from __future__ import annotations

from app.monitor.histories import POINTS_MAX, Point, PointHistory


def point(monotonic_ms: int, *, sync_p50_ms: float | None = None) -> Point:
    return Point(
        at_ms=0,
        monotonic_ms=monotonic_ms,
        records_in=0,
        bytes_in=0,
        bytes_out=0,
        listener_bytes_in=(),
        listener_bytes_out=(),
        listener_connections=(),
        syncs=0,
        sync_p50_ms=sync_p50_ms,
        sync_p99_ms=sync_p50_ms,
        log_bytes=0,
        free_bytes=None,
    )


def history(*points: Point) -> PointHistory:
    made = PointHistory()
    for point in points:
        made.add(point)
    return made


def test_there_are_no_rates_before_the_second_point() -> None:
    assert history().rates() is None
    assert history(point(0)).rates() is None
    assert history().newest is None


def test_rates_are_over_the_shortest_time_that_is_long_enough() -> None:
    points = [point(0), point(5_000), point(10_000), point(15_000)]
    assert history(*points).rates(10_000) == (points[1], points[3])
    assert history(*points).rates(4_000) == (points[2], points[3])
    # Nothing is as old: the oldest there is.
    assert history(*points).rates(60_000) == (points[0], points[3])


def test_as_many_points_are_kept_as_an_hour_has() -> None:
    kept = history(*(point(number) for number in range(POINTS_MAX + 5)))
    assert [point.monotonic_ms for point in kept.last(10_000)] == list(range(5, POINTS_MAX + 5))
    assert [point.monotonic_ms for point in kept.last(2)] == [POINTS_MAX + 3, POINTS_MAX + 4]


def test_the_times_of_syncs_are_those_of_the_newest_point_that_has_some() -> None:
    points = [point(0, sync_p50_ms=1.0), point(1, sync_p50_ms=2.0), point(2)]
    assert history(*points).last_with_syncs() is points[1]
    assert history(point(0)).last_with_syncs() is None
