"""All brokers of a cluster keep their records in one object store, which may come later than the first records."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
from stele.broker_process import BrokerStartError
from stele.testing import BrokerProcess, run_broker

from app.postgres.pool import PostgresPool
from app.storage.setup_problems import InvalidStorage
from app.storage.shared.postgres.meta import PostgresMeta
from app.storage.shared.store.object_store import Buffer, ObjectStore, ObjectStoreError
from app.storage.shared.store.urls import open_object_store
from app.storage.shared.store_identity import IdentifiedStore, check_inline
from load.postgres_server import PostgresServer
from tests.support.faults import hooks
from tests.support.s3_servers import moto, use_test_credentials
from tests.support.shared_meta import batch, written_object
from tests.support.waiting import eventually

pytestmark = pytest.mark.long


@pytest.fixture
def store_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    use_test_credentials(monkeypatch)
    with moto() as url:
        yield url


def settings(server: PostgresServer, broker_id: int, store: str = "inline") -> dict[str, str]:
    return {
        "STELE_STORAGE": "shared",
        "STELE_POSTGRES_URL": server.dsn,
        "STELE_BROKER_ID": str(broker_id),
        "STELE_OBJECT_STORE": store,
    }


def write(broker: BrokerProcess, value: str) -> None:
    body = {"records": [{"value": value}]}
    httpx.post(f"{broker.http_url}/v1/topics/orders/records", json=body, timeout=60).raise_for_status()


def read(broker: BrokerProcess, start: int = 0) -> httpx.Response:
    return httpx.get(
        f"{broker.http_url}/v1/topics/orders/partitions/0/records", params={"from": start}, timeout=60
    )


def values(broker: BrokerProcess) -> list[str]:
    answer = read(broker)
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()["records"]]


def test_a_cluster_moves_from_postgresql_to_an_object_store_broker_by_broker(
    own_server: PostgresServer, store_url: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    with run_broker(second, environment=settings(own_server, 2)) as inline:
        with run_broker(first, environment=settings(own_server, 1)) as broker:
            httpx.put(f"{broker.http_url}/v1/topics/orders", json={"partitions": 1}).raise_for_status()
            write(broker, "a")
            write(inline, "b")
        with run_broker(first, environment=settings(own_server, 1, store_url)) as broker:
            assert values(inline) == values(broker) == ["a", "b"]
            write(broker, "c")
            assert values(inline) == ["a", "b"], "what comes before it is served"
            refused = read(inline, 2)
            assert (refused.status_code, refused.json()["retriable"]) == (503, True)
            assert "set STELE_OBJECT_STORE" in refused.text
            write(inline, "d")
            assert values(broker) == ["a", "b", "c", "d"]
    # Its upkeep does in seconds what takes others a quarter of an hour.
    fast = {hooks.HOOK: hooks.INSTALL}
    with run_broker(second, environment=settings(own_server, 2, store_url) | fast) as broker:
        assert values(broker) == ["a", "b", "c", "d"]
        inline = "SELECT key FROM stele.inline_objects"
        eventually(lambda: own_server.run(inline) == [], "merges have moved all records to the store")
        assert values(broker) == ["a", "b", "c", "d"]
    with (
        pytest.raises(BrokerStartError, match="this cluster keeps records in an object store"),
        run_broker(second, environment=settings(own_server, 2)),
    ):
        pytest.fail("the broker started")


def test_a_broker_with_another_object_store_ends_with_what_to_do(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    with run_broker(tmp_path / "1", environment=settings(own_server, 1, f"file://{store}")) as broker:
        httpx.put(f"{broker.http_url}/v1/topics/orders", json={"partitions": 1}).raise_for_status()
        write(broker, "a")
        with (
            pytest.raises(BrokerStartError, match="is not the one with the records of this cluster"),
            run_broker(tmp_path / "2", environment=settings(own_server, 2, f"file://{tmp_path}/other")),
        ):
            pytest.fail("the broker started")
    shutil.copytree(store, copy)
    with run_broker(tmp_path / "1", environment=settings(own_server, 1, f"file://{copy}")) as moved:
        assert values(moved) == ["a"]


def opened(path: Path, pool: PostgresPool) -> IdentifiedStore:
    return IdentifiedStore(open_object_store(f"file://{path}"), pool, f"file://{path}")


async def with_an_object(pool: PostgresPool, store: ObjectStore) -> None:
    """Commit an object as releases did that did not know the identity of a store."""
    meta = PostgresMeta(pool)
    (log,) = await meta.create_logs(UUID(int=1), 1)
    await store.put("w/1", b"records")
    await meta.commit_objects([written_object("w/1", [(log.log_id, [batch(1)])])])


async def test_brokers_that_start_together_agree_on_the_store(pool: PostgresPool, tmp_path: Path) -> None:
    stores = [opened(tmp_path / name, pool) for name in ("one", "other") for _ in range(4)]
    outcomes = await asyncio.gather(*(store.identify() for store in stores), return_exceptions=True)
    refused = [isinstance(outcome, InvalidStorage) for outcome in outcomes]
    assert refused in ([True] * 4 + [False] * 4, [False] * 4 + [True] * 4)
    kept = [await store.list_page("identity/") for store in (stores[0], stores[-1])]
    assert sorted(map(len, kept)) == [0, 1]


async def test_a_store_that_cannot_delete_the_id_of_a_slower_broker_is_refused_all_the_same(
    pool: PostgresPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(keys: Sequence[str]) -> None:
        raise ObjectStoreError("not now")

    first, slower = opened(tmp_path / "one", pool), opened(tmp_path / "other", pool)
    monkeypatch.setattr(slower.inner, "delete", fails)
    put = slower.inner.put

    async def overtaken(key: str, data: Buffer) -> None:
        await put(key, data)
        await first.identify()

    monkeypatch.setattr(slower.inner, "put", overtaken)
    with pytest.raises(InvalidStorage, match="is not the one"):
        await slower.identify()


async def test_several_clusters_may_share_a_store(
    server: PostgresServer, pool: PostgresPool, tmp_path: Path
) -> None:
    other = PostgresPool(server.dsn, schema=f"stele_{uuid4().hex}")
    await other.open()
    for _ in range(2):
        await opened(tmp_path, pool).identify()
        await opened(tmp_path, other).identify()
    assert len(await opened(tmp_path, pool).list_page("identity/")) == 2
    await other.close()


async def test_nothing_is_written_to_a_store_that_was_not_checked_at_the_start(
    pool: PostgresPool, tmp_path: Path
) -> None:
    """Its start fell into an outage."""
    right, wrong = opened(tmp_path / "right", pool), opened(tmp_path / "wrong", pool)
    await right.put("w/1", b"records")
    with pytest.raises(ObjectStoreError, match="is not the one with the records of this cluster"):
        await wrong.put("w/2", b"records")
    assert await wrong.list_page("w/") == []
    assert [stored.key for stored in await right.list_page("w/")] == ["w/1"]


async def test_a_store_without_the_records_of_an_earlier_release_does_not_become_that_of_the_cluster(
    pool: PostgresPool, tmp_path: Path
) -> None:
    right, wrong = opened(tmp_path / "right", pool), opened(tmp_path / "wrong", pool)
    await with_an_object(pool, right.inner)
    with pytest.raises(InvalidStorage, match="it has no object w/1"):
        await wrong.identify()
    with pytest.raises(InvalidStorage, match="keeps records in an object store"):
        await check_inline(pool)
    await right.identify()
    assert len(await right.list_page("identity/")) == 1


async def test_a_store_that_has_lost_its_id_but_not_the_records_gets_it_again(
    pool: PostgresPool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, wrong = opened(tmp_path / "right", pool), opened(tmp_path / "wrong", pool)
    await with_an_object(pool, store.inner)
    await store.identify()
    (identity,) = await store.list_page("identity/")
    await store.delete([identity.key])
    with pytest.raises(InvalidStorage):
        await wrong.identify()
    await opened(tmp_path / "right", pool).identify()
    assert await store.list_page("identity/") == [identity]
    assert "it is written again" in caplog.text


async def test_an_outage_of_the_store_is_no_mistake_and_missing_rights_are(
    pool: PostgresPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_test_credentials(monkeypatch)
    url = "s3://records?endpoint=http://127.0.0.1:1"
    with pytest.raises(ObjectStoreError):
        await IdentifiedStore(open_object_store(url), pool, url).identify()
    await check_inline(pool)

    async def refuses(key: str, data: Buffer) -> None:
        raise ObjectStoreError("AccessDenied")

    store = IdentifiedStore(opened(tmp_path, pool).inner, pool, url)
    monkeypatch.setattr(store.inner, "put", refuses)
    with pytest.raises(InvalidStorage, match="s3:PutObject"):
        await store.identify()
