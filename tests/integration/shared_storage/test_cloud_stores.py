"""The stores of Azure and Google Cloud do what every object store must do, and brokers keep their records there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.shared.store.object_store import ObjectStore
from app.storage.shared.store.urls import open_object_store
from load.postgres_server import PostgresServer
from tests.support.brokers import run_brokers
from tests.support.cloud_servers import azurite, google_cloud
from tests.support.object_store_contract import LongListingContract, ObjectStoreContract

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def azure_url() -> Iterator[str]:
    with azurite() as url:
        yield url


@pytest.fixture(scope="module")
def google_url() -> Iterator[str]:
    with google_cloud() as url:
        yield url


@pytest.mark.slow
class TestAzure(ObjectStoreContract):
    @pytest.fixture
    def store(self, azure_url: str) -> ObjectStore:
        return open_object_store(azure_url)


@pytest.mark.slow
class TestGoogleCloud(ObjectStoreContract):
    @pytest.fixture
    def store(self, google_url: str) -> ObjectStore:
        return open_object_store(google_url)


@pytest.mark.long
class TestLongListingOfAzure(LongListingContract):
    @pytest.fixture
    def store(self, azure_url: str) -> ObjectStore:
        return open_object_store(azure_url)


@pytest.mark.long
class TestLongListingOfGoogleCloud(LongListingContract):
    @pytest.fixture
    def store(self, google_url: str) -> ObjectStore:
        return open_object_store(google_url)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["azure", "google"])
def test_what_one_broker_has_written_another_reads(
    kind: str, own_server: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(f"{kind}_url")
    environment = {"STELE_OBJECT_STORE": url, "STELE_SHARED_LINGER_MS": "20"}
    with run_brokers(tmp_path, own_server.dsn, 2, environment=environment) as brokers:
        with brokers.http(1) as http:
            for number in range(5):
                body = {"records": [{"value": f"record {number}"}]}
                http.post("/v1/topics/orders/records", json=body, timeout=60).raise_for_status()
        with brokers.http(2) as http:
            page = http.get("/v1/topics/orders/partitions/0/records", timeout=60)
        assert page.status_code == 200, page.text
        values = [record["value"] for record in page.json()["records"]]
        assert values == [f"record {number}" for number in range(5)]
