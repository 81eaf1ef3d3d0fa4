"""The producer state after a start: from a snapshot, and what is left of the log after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.broker.producing.producer_state import ProducerStates
from app.storage.disk.files import RealFiles
from app.storage.disk.whole_files import write_file
from app.storage.recovery.producer_state_replay import ProducerStateReplay
from app.storage.segments.partition_files import PartitionFiles
from tests.support.batches import header_of
from tests.support.log_transactions import StillClock

TRANSACTIONAL = 1 << 4


@pytest.mark.parametrize(("first_offset", "first_open_offset"), [(5, 4), (6, None)])
def test_a_transaction_whose_marker_may_be_deleted_does_not_stay_open(
    tmp_path: Path, first_offset: int, first_open_offset: int | None
) -> None:
    before = ProducerStates(StillClock())
    before.apply(replace(header_of(base_offset=4), attributes=TRANSACTIONAL), None)
    partition = PartitionFiles(RealFiles(), tmp_path)
    write_file(partition.files, partition.producers_path(5), before.snapshot())

    states = ProducerStates(StillClock())
    replay = ProducerStateReplay(partition, states, first_offset=first_offset)
    replay.restore_before(9, ())
    assert states.first_open_offset == first_open_offset

    # The next transaction of the producer is one of its own.
    replay.feed(replace(header_of(base_offset=9, base_sequence=1), attributes=TRANSACTIONAL), None)
    assert states.first_open_offset == (9 if first_open_offset is None else first_open_offset)
