"""Surveys of the cluster at a bounded cost, however many clients ask.

A survey is made when a client asks and the last one is more than a second old; all who ask in the meantime get
the same one. Counting objects reads a row per object, so it is repeated only after a hundred times the time it took.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..clock import Clock
from ..cluster.survey import ObjectTotal, Survey, Surveyor
from ..errors import StorageUnavailable

logger = logging.getLogger(__name__)

_FRESH_MS = 1_000
# Counting objects takes at most a hundredth of the time.
_OBJECTS_COST = 100
# A client does not wait longer for a database that does not answer; it gets the last survey.
_WAIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyNow:
    """The last survey and its age.

    ``problem`` says why there is no younger one, None if there should be none.

    ``objects`` is None until the first count has ended.
    """

    survey: Survey | None
    age_ms: int | None
    objects: Sequence[ObjectTotal] | None
    objects_age_ms: int | None
    problem: str | None


class RoundTripTimes(Protocol):
    """Percentiles of the last minute, in ms."""

    @property
    def p50_ms(self) -> float: ...
    @property
    def p99_ms(self) -> float: ...
    @property
    def max_ms(self) -> float: ...


class PostgresTimes(Protocol):
    """Round trips to PostgreSQL: totals since the start, and those of the last minute."""

    @property
    def errors(self) -> int: ...
    @property
    def round_trips(self) -> int: ...
    @property
    def round_trip_s(self) -> float: ...
    def recent(self) -> RoundTripTimes | None: ...


class Surveys:
    """The surveys of one broker."""

    def __init__(
        self, surveyor: Surveyor, postgres: PostgresTimes, clock: Clock, *, wait_s: float = _WAIT_S
    ) -> None:
        self._wait_s = wait_s
        # Of this broker, for the same readers.
        self.postgres = postgres
        self._surveyor = surveyor
        self._clock = clock
        self._survey: Survey | None = None
        self._survey_ms = 0
        self._objects: Sequence[ObjectTotal] | None = None
        self._objects_ms = 0
        self._next_ms = self._next_objects_ms = 0
        self._problem: str | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def last(self) -> SurveyNow:
        """The last survey, however old."""
        now_ms = self._clock.monotonic_ms()
        return SurveyNow(
            survey=self._survey,
            age_ms=None if self._survey is None else now_ms - self._survey_ms,
            objects=self._objects,
            objects_age_ms=None if self._objects is None else now_ms - self._objects_ms,
            problem=self._problem,
        )

    async def now(self) -> SurveyNow:
        """Return a survey that is a second old at most; an older one if the database does not answer soon."""
        task = self._task
        if task is None and self._clock.monotonic_ms() >= self._next_ms:
            task = self._task = asyncio.create_task(self._take())
        if task is not None:
            # The survey goes on, because a thread cannot be interrupted; the next client finds it.
            _, pending = await asyncio.wait((task,), timeout=self._wait_s)
            if pending and self._problem is None:
                self._problem = f"PostgreSQL has not answered within {self._wait_s:g} seconds"
        return self.last

    async def _take(self) -> None:
        problem: str | None = None
        try:
            begun_ms = self._clock.monotonic_ms()
            self._survey = await self._surveyor.survey()
            self._survey_ms = begun_ms
            if begun_ms >= self._next_objects_ms:
                await self._count()
        except StorageUnavailable as error:
            problem = str(error)
        except Exception as error:  # the edge of a task: those who wait get the last survey, and the reason
            logger.exception("a survey of the cluster failed")
            problem = str(error)
        finally:
            self._problem = problem
            self._next_ms = self._clock.monotonic_ms() + _FRESH_MS
            self._task = None

    async def _count(self) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            self._objects = await self._surveyor.objects()
            self._objects_ms = begun_ms
        finally:
            # Even after a count that took too long.
            now_ms = self._clock.monotonic_ms()
            self._next_objects_ms = now_ms + max(_FRESH_MS, _OBJECTS_COST * (now_ms - begun_ms))

    async def close(self) -> None:
        """Wait for a survey under way."""
        if self._task is not None:
            await asyncio.wait((self._task,))
