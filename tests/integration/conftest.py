"""What many modules use: a broker of the module's own, and a connection that speaks the Kafka protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from stele.broker_process import BrokerProcess, run_broker

from tests.support.kafka_peer import KafkaPeer


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """One for the module, with its ``ENVIRONMENT``; each test has topics and groups of its own."""
    module = cast("dict[str, Any]", vars(cast("Any", request).module))
    with run_broker(environment=module.get("ENVIRONMENT")) as running:
        yield running


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[KafkaPeer]:
    with KafkaPeer(broker) as opened:
        yield opened
