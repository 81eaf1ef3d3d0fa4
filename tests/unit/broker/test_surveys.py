"""Surveys: one query for all who ask, a bounded cost, and an answer when the database has none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.broker.surveys import Surveys
from app.cluster.survey import MergeBacklog, ObjectTotal, Survey, SweepBacklog
from app.errors import StorageUnavailable
from app.postgres.traffic import PostgresTraffic
from tests.support.one_lease import HandClock

EMPTY = Survey(
    brokers=(),
    partitions=3,
    log_bytes=0,
    merge=MergeBacklog(partitions=0, bytes=0, oldest_ms=None),
    sweep=SweepBacklog(suspects=0, deletable_objects=0, deletable_bytes=0, silent_uploaders=0),
    metadata_bytes=0,
)
TOTAL = ObjectTotal(store="inline", state="committed", count=1, bytes=2)


class HandSurveyor:
    """Counts its calls. A count of objects takes ``count_ms`` of the clock; ``error`` is raised by surveys."""

    def __init__(self, clock: HandClock) -> None:
        self.surveys = self.counts = 0
        self.count_ms = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._clock = clock

    async def survey(self) -> Survey:
        self.surveys += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return EMPTY

    async def objects(self) -> Sequence[ObjectTotal]:
        self.counts += 1
        self._clock.ms += self.count_ms
        return [TOTAL]


async def test_requests_within_a_second_share_one_survey() -> None:
    clock = HandClock()
    surveyor = HandSurveyor(clock)
    surveys = Surveys(surveyor, PostgresTraffic(), clock)
    assert surveys.last.survey is None
    answers = await asyncio.gather(*(surveys.now() for _ in range(100)))
    assert {answer.survey is EMPTY for answer in answers} == {True}
    clock.ms += 999
    assert (await surveys.now()).age_ms == 999
    assert surveyor.surveys == 1
    clock.ms += 1
    assert (await surveys.now()).age_ms == 0
    assert surveyor.surveys == 2


async def test_objects_are_counted_for_a_hundredth_of_the_time() -> None:
    clock = HandClock()
    surveyor = HandSurveyor(clock)
    surveyor.count_ms = 200
    surveys = Surveys(surveyor, PostgresTraffic(), clock)
    assert (await surveys.now()).objects == [TOTAL]
    for _ in range(19):
        clock.ms += 1_000
        await surveys.now()
    assert surveyor.counts == 1
    clock.ms += 1_000
    assert (await surveys.now()).objects_age_ms == 200
    assert surveyor.counts == 2
    assert surveyor.surveys == 21


async def test_without_the_database_the_last_survey_stays_with_the_reason() -> None:
    clock = HandClock()
    surveyor = HandSurveyor(clock)
    surveys = Surveys(surveyor, PostgresTraffic(), clock)
    await surveys.now()
    surveyor.error = StorageUnavailable("a survey", "no route to host")
    clock.ms += 1_000
    answer = await surveys.now()
    assert answer.survey is EMPTY
    assert answer.age_ms == 1_000
    assert "no route to host" in (answer.problem or "")
    await surveys.now()
    assert surveyor.surveys == 2, "a database that fails is not asked more often"
    surveyor.error = None
    clock.ms += 1_000
    assert (await surveys.now()).problem is None


async def test_a_survey_that_hangs_delays_no_request_and_is_not_repeated() -> None:
    clock = HandClock()
    surveyor = HandSurveyor(clock)
    surveyor.gate.clear()
    surveys = Surveys(surveyor, PostgresTraffic(), clock, wait_s=0.01)
    answers = [await surveys.now() for _ in range(2)]
    assert answers[1].survey is None
    assert "has not answered" in (answers[1].problem or "")
    assert surveyor.surveys == 1
    surveyor.gate.set()
    await surveys.close()
    assert surveys.last.survey is EMPTY
    assert surveys.last.problem is None


def test_round_trips_have_percentiles_of_the_last_minute() -> None:
    traffic = PostgresTraffic()
    assert traffic.recent() is None
    for ms in range(1, 1001):
        traffic.measured(ms / 1000)
    recent = traffic.recent()
    assert recent is not None
    assert round(recent.p50_ms) == 880
    assert round(recent.max_ms) == 1000
    assert traffic.round_trips == 1000
