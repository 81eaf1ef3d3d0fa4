"""One check runs at a time; its result is kept until its topic is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stele.wire import record_batch as rb

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.composition import open_broker
from app.monitor.verifications import Verifications
from app.settings import Settings


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    opened = await open_broker(Settings(data_dir=tmp_path))
    await opened.create_topic("orders", partitions=1, configs={})
    opened.produce("orders", 0, rb.build_values([b"a", b"b"], 1000), acks=Acks.LEADER)
    yield opened
    await opened.close()


async def test_a_result_is_kept_until_its_topic_is_forgotten(broker: Broker) -> None:
    verifications = Verifications()
    document = await verifications.run(broker, "orders", 0, lambda: False)
    assert document is not None
    assert (document["is_good"], document["batches"], document["records"]) == (True, 1, 2)
    assert verifications.last("orders", 0) == document
    assert not verifications.is_running
    verifications.forget("orders")
    assert verifications.last("orders", 0) is None


async def test_one_that_was_stopped_leaves_nothing(broker: Broker) -> None:
    verifications = Verifications()
    assert await verifications.run(broker, "orders", 0, lambda: True) is None
    assert (verifications.last("orders", 0), verifications.is_running) == (None, False)
