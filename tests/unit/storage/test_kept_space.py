"""Who stops waiting for work in the space that is kept back leaves it as it was."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress

import pytest

from app.errors import StorageFull
from app.storage.logs.log_dir import LogDir
from tests.support.engines import DATA
from tests.support.simulated_files import Fault, SimulatedFiles
from tests.support.simulated_time import simulated


@pytest.mark.parametrize("turns", range(8))
@simulated
async def test_appends_are_admitted_again_although_the_caller_stopped_waiting(turns: int) -> None:
    files = SimulatedFiles()
    files.make_dir(DATA)
    log_dir = LogDir(files, DATA, threads=1)
    await log_dir.keep_space()

    async def work() -> None:
        await asyncio.sleep(0)
        raise StorageFull(DATA, "nothing is enough")

    waiting = asyncio.create_task(log_dir.with_kept_space(work))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError, StorageFull):
        await waiting
    # The disk is full once more, and then is not.
    files.fail(Fault(errno=errno.ENOSPC, kinds=("create",)))
    log_dir.spend_kept_space()
    log_dir.keep_space_now()
    assert log_dir.refuses_appends
    log_dir.admit_append(DATA, is_marker=False)
    assert not log_dir.refuses_appends
