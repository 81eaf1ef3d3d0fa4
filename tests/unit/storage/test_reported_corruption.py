"""The log line of a start about corrupt bytes names the offsets that readers miss, if there are any."""

from __future__ import annotations

import logging

import pytest

from tests.support.engines import segment_path
from tests.support.simulated_files import SimulatedFiles
from tests.support.simulated_time import simulated
from tests.unit.storage.test_corruption import flip, killed, positions_of, start

LOG = segment_path(0)
# Three batches.
SEGMENT_BYTES = 1500


async def reported(files: SimulatedFiles, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        engine = await start(files, segment_bytes=SEGMENT_BYTES)
    await engine.close()
    (message,) = [record.getMessage() for record in caplog.records if str(LOG) in record.getMessage()]
    return message


@simulated
async def test_a_corrupt_batch_is_named_with_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    files = await killed(checkpointed=False, segment_bytes=SEGMENT_BYTES)
    flip(files, LOG, positions_of(files, LOG)[1] + 70)
    assert "offsets 3 to 5 cannot be read, all offsets after them can" in await reported(files, caplog)


@simulated
async def test_bytes_after_the_last_batch_of_a_sealed_segment_miss_no_offset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = await killed(checkpointed=False, segment_bytes=SEGMENT_BYTES)
    files.damage(LOG, bytes(files.content(LOG)) + b"no batch" * 20)
    assert "no offset is missing, the log continues with offset 9" in await reported(files, caplog)
