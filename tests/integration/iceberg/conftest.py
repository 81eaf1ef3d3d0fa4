"""A broker whose topics are tables, and what writes them; a module may have a broker or tables of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stele.client import Client
from stele.registry.registry import SchemaRegistry
from stele.testing import BrokerProcess

from tests.support.brokers import run_broker_or_cluster
from tests.support.iceberg import BY_HAND, Writing, writing


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with run_broker_or_cluster(tmp_path_factory.mktemp("iceberg"), environment=BY_HAND) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[Client]:
    with Client(broker.binary_url) as opened:
        yield opened


@pytest.fixture(scope="module")
def registry(broker: BrokerProcess) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(broker.registry_url) as opened:
        yield opened


@pytest.fixture
def tables(broker: BrokerProcess, tmp_path: Path) -> Iterator[Writing]:
    with writing(broker, tmp_path) as made:
        yield made
