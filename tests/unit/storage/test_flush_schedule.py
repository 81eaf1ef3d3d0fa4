"""A log is synced by the earliest of the times that its appends ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import uvloop

from app.storage.syncing.flush_schedule import FlushSchedule


def test_a_log_that_is_due_at_once_waits_for_no_later_time_on_the_loop_of_the_broker() -> None:
    due: list[str] = []

    async def main() -> None:
        ended = asyncio.Event()

        def on_due(logs: Iterable[str]) -> None:
            due.extend(logs)
            ended.set()

        schedule = FlushSchedule[str](on_due)
        schedule.add("log", 3_600_000)
        schedule.add("log", 0)
        await ended.wait()

    uvloop.run(main())
    assert due == ["log"]
