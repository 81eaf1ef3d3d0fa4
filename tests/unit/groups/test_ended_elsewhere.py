"""Pending offsets of transactions that end at other brokers are settled before they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.groups.ended_elsewhere import EndedElsewhere
from tests.support.groups import GroupBench
from tests.support.simulated_time import simulated


@simulated
async def test_what_the_writes_before_it_have_settled_is_asked_of_nobody(tmp_path: Path) -> None:
    asked: list[Sequence[tuple[int, int]]] = []

    def ask(pending: Sequence[tuple[int, int]]) -> Sequence[tuple[int, bool]]:
        asked.append(pending)
        return [(producer_id, True) for producer_id, _ in pending]

    bench = await GroupBench(tmp_path).open()
    elsewhere = EndedElsewhere(bench.coordinator.table, ask)
    await bench.commit(3)
    await bench.stage(5)
    # The end of this broker's own transaction is on its way to the store.
    ending = bench.end(commit=False)
    await elsewhere.settle()
    await ending
    assert asked == []
    assert bench.committed() == 3

    await bench.stage(8)
    await elsewhere.settle()
    assert [producer_id for ((producer_id, _),) in asked] == [7]
    assert bench.committed() == bench.stable_offset() == 8
    await bench.close()
