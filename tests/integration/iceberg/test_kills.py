"""A writer that is killed at each step of its commits, while producers go on: every offset once in each snapshot."""

from __future__ import annotations

import json
import os
import random
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from stele.client import Client
from stele.records import RecordMetadata
from stele.testing import BrokerProcess

from tests.support.iceberg import writing
from tests.support.killed_iceberg import run_until

# Of a topic of two partitions in which a record in five does not fit, and a transaction in three is aborted.
PARTITIONS = 2
STEPS_MAX = 90
Places = set[tuple[int, int]]


class Producing:
    """Produces until ``stop``; knows where its records are."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self.fitting: Places = set()
        self.misfits: Places = set()
        self.aborted = 0
        self.ends = 0
        self._broker = broker
        self._name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _produce(self) -> None:
        with Client(self._broker.http_url) as client:
            number = 0
            while not self._stopping.wait(0.01):
                number += 1
                if number % 3 == 0:
                    self._produce_as_one(client, is_aborted=number % 9 == 0)
                    continue
                is_misfit = number % 5 == 0
                done = client.produce(
                    self._name,
                    b"%d" % number * 50,
                    partition=number % PARTITIONS,
                    timestamp=-(2**60) if is_misfit else number * 86_400_000 // 20,
                )
                (self.misfits if is_misfit else self.fitting).add((done.partition, done.offset))

    def _produce_as_one(self, client: Client, *, is_aborted: bool) -> None:
        with suppress(ZeroDivisionError), client.transaction("killed-iceberg") as transaction:
            done: list[RecordMetadata] = [
                transaction.produce(self._name, b"together", partition=partition)
                for partition in range(PARTITIONS)
            ]
            if is_aborted:
                raise ZeroDivisionError
            self.fitting |= {(one.partition, one.offset) for one in done}
        self.aborted += PARTITIONS if is_aborted else 0
        self.ends += PARTITIONS


def _places(table: Table, snapshot_id: int | None = None) -> Places:
    scan: Any = table.scan(snapshot_id=snapshot_id, selected_fields=("partition", "offset"))
    listed = [(row["partition"], row["offset"]) for row in scan.to_arrow().to_pylist()]
    assert len(set(listed)) == len(listed), f"snapshot {snapshot_id} has rows twice"
    return set(listed)


def _kill(broker: BrokerProcess, directory: Path, kills: int) -> None:
    name = f"killed-{kills}"
    with Client(broker.binary_url) as client:
        client.create_topic(name, partitions=PARTITIONS, configs={"stele.iceberg.mode": "key_value"})
    producing = Producing(broker, name)
    killed = 0
    try:
        while killed < kills:
            killed += run_until(random.randint(1, STEPS_MAX), broker, directory, name)
    finally:
        producing.stop()
    # No step has this number: it writes what is left.
    assert not run_until(0, broker, directory, name)
    with writing(broker, directory) as tables, Client(broker.binary_url) as client:
        table, errors = tables.table(name), tables.table(f"{name}_errors")
        ends = sum(client.list_offset(name, partition) or 0 for partition in range(PARTITIONS))
    for snapshot in table.snapshots():
        assert snapshot.summary is not None
        next_offsets = json.loads(snapshot.summary["stele.offsets"] or "")
        assert _places(table, snapshot.snapshot_id) == {
            place for place in producing.fitting if place[1] < next_offsets[str(place[0])]
        }
    fitting, misfits = _places(table), _places(errors)
    assert fitting == producing.fitting
    assert misfits == producing.misfits
    assert len(fitting) + len(misfits) == ends - producing.aborted - producing.ends


@pytest.mark.long
def test_every_offset_is_once_in_each_snapshot_after_kills(broker: BrokerProcess, tmp_path: Path) -> None:
    _kill(broker, tmp_path, 20)


@pytest.mark.torture
def test_every_offset_is_once_in_each_snapshot_after_many_kills(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    _kill(broker, tmp_path, int(os.environ.get("STELE_TEST_ICEBERG_KILLS", "200")))
