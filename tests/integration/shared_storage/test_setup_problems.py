"""A broker that cannot use PostgreSQL or its object store says why, and what to do."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast
from uuid import uuid4

import httpx
import pytest
from stele.broker_process import BrokerStartError
from stele.testing import BrokerProcess, run_broker

from app.postgres.connector import PostgresUnavailable
from app.postgres.pool import PostgresPool
from app.storage.setup_problems import Advice, InvalidStorage, postgres_advice
from app.storage.shared.store.check import StoreCheck, check_store
from app.storage.shared.store.object_store import ObjectStore, ObjectStoreError
from app.storage.shared.store.urls import open_object_store
from load.postgres_server import PostgresServer
from load.seaweedfs import WEED, running_seaweedfs
from tests.support.certificates import Authority
from tests.support.faults import hooks
from tests.support.faults.links import LinkLoop
from tests.support.faults.store_proxy import StoreFault, StoreMood, StoreProxy
from tests.support.postgres_proxy import PoolerProxy
from tests.support.s3_servers import BUCKET, moto, use_test_credentials
from tests.support.waiting import eventually

pytestmark = pytest.mark.long

_Proxy = TypeVar("_Proxy", bound=StoreProxy)

# ── PostgreSQL ──


@pytest.fixture(scope="module")
def locked(server: PostgresServer) -> PostgresServer:
    """A server with a user that needs a password, one that may not connect, and one that may not create a schema."""
    server.run("CREATE ROLE careful LOGIN PASSWORD 'right'")
    server.run("CREATE ROLE outsider LOGIN")
    server.run("CREATE ROLE humble LOGIN")
    ((path,),) = server.run("SHOW hba_file")
    rules = Path(path)
    rules.write_text(
        "host all careful 127.0.0.1/32 scram-sha-256\nhost all outsider 127.0.0.1/32 reject\n"
        + rules.read_text()
    )
    server.stop()
    server.start()
    return server


@pytest.mark.parametrize(
    ("user", "rest", "advice"),
    [
        ("careful:wrong", "postgres", "correct the user and the password"),
        ("careful", "postgres", "correct the user and the password"),
        ("postgres", "nowhere", "CREATE DATABASE"),
        ("nobody_knows", "postgres", "CREATE ROLE"),
        ("outsider", "postgres", "pg_hba.conf"),
        ("humble", "postgres", "GRANT CREATE ON DATABASE"),
        ("postgres", "postgres?sslmode=require", "turn ssl on"),
    ],
)
async def test_a_mistake_in_the_set_up_of_postgresql_is_explained(
    locked: PostgresServer, user: str, rest: str, advice: str
) -> None:
    given = await advice_for(f"postgresql://{user}@127.0.0.1:{locked.port}/{rest}")
    assert advice in given.text
    assert given.is_mistake


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("postgresql://127.0.0.1:1/none", "start PostgreSQL"),
        ("postgresql://no-such-host.invalid/none", "correct the host"),
    ],
)
async def test_an_outage_of_postgresql_is_no_mistake(url: str, advice: str) -> None:
    given = await advice_for(url)
    assert advice in given.text
    assert not given.is_mistake


@pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "dropped"])
def test_a_broker_behind_a_connection_pooler_ends_with_what_to_do(
    server: PostgresServer, tmp_path: Path, is_refused: bool
) -> None:
    with PoolerProxy(server.port, is_refused=is_refused) as proxy:
        environment = {
            "STELE_STORAGE": "shared",
            "STELE_POSTGRES_URL": server.dsn.replace(str(server.port), str(proxy.port)),
        }
        with (
            pytest.raises(BrokerStartError, match=r"PostgreSQL cannot be used: [^$]*PgBouncer"),
            run_broker(tmp_path, environment=environment),
        ):
            pytest.fail("the broker started")


async def advice_for(url: str) -> Advice:
    pool = PostgresPool(url, schema="refused")
    try:
        with pytest.raises(PostgresUnavailable) as raised:
            await pool.open()
    finally:
        await pool.close()
    return postgres_advice(str(raised.value))


def test_a_broker_with_a_wrong_password_ends_with_what_to_do(locked: PostgresServer, tmp_path: Path) -> None:
    environment = {
        "STELE_STORAGE": "shared",
        "STELE_POSTGRES_URL": f"postgresql://careful:wrong@127.0.0.1:{locked.port}/postgres",
    }
    with (
        pytest.raises(
            BrokerStartError, match=r"password authentication failed[^$]*correct the user"
        ) as raised,
        run_broker(tmp_path, environment=environment),
    ):
        pytest.fail("the broker started")
    assert "wrong@" not in str(raised.value)


# ── object stores ──


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials(monkeypatch)


async def test_a_store_that_can_be_used_keeps_nothing_of_the_check(moto_url: str) -> None:
    store, incarnation = open_object_store(moto_url), uuid4()
    checked = await check_store(store, moto_url, incarnation)
    assert checked == StoreCheck(is_usable=True, written=f"w/{incarnation}/check.5")
    assert await store.list_page(f"w/{incarnation}/") == []


@pytest.mark.parametrize("lost", ["put", "delete"])
async def test_an_object_of_the_check_that_a_store_may_keep_is_named(moto_url: str, lost: str) -> None:
    store, incarnation = open_object_store(moto_url), uuid4()

    class LosesAnswers:
        def __getattr__(self, name: str) -> Any:
            async def call_and_lose(*arguments: Any) -> None:
                if name == "put":
                    await store.put(*arguments)
                raise ObjectStoreError("the answer was lost")

            return call_and_lose if name == lost else getattr(store, name)

    checked = await check_store(cast("ObjectStore", LosesAnswers()), moto_url, incarnation)
    (kept,) = await store.list_page(f"w/{incarnation}/")
    assert checked == StoreCheck(is_usable=False, written=kept.key)


class LosesAnswersToPuts(StoreProxy):
    def _fault(self, request: Any, mood: StoreMood) -> StoreFault | None:
        is_lost = request.method == "PUT" and self.mood.faults
        return StoreFault.LOST_ANSWER if is_lost else None


class RepeatsThePutOfTheCheck(StoreProxy):
    """Drops the first PUT of the check, and gives it to the store after the check has ended."""

    def __init__(self, loop: LinkLoop, target: tuple[str, int]) -> None:
        super().__init__(loop, "store", target, Random(0))
        self.is_repeated = threading.Event()
        self._is_dropped = self._is_deleted = False
        self._has_ended = asyncio.Event()

    def _fault(self, request: Any, mood: StoreMood) -> StoreFault | None:
        if self._is_deleted:
            # The next request: the broker has the answer to its DELETE.
            self._has_ended.set()
        if request.method in ("DELETE", "POST"):
            self._is_deleted = True
        if request.method == "PUT" and not self._is_dropped:
            self._is_dropped = True
            return StoreFault.LATE
        return None

    async def _send_late(self, request: Any, delay_s: float) -> None:
        await self._has_ended.wait()
        await super()._send_late(request, 0)
        self.is_repeated.set()


@contextmanager
def behind(
    proxy_of: Callable[[LinkLoop, tuple[str, int]], _Proxy],
    server: PostgresServer,
    store_url: str,
    path: Path,
) -> Generator[tuple[BrokerProcess, _Proxy]]:
    """Run a broker whose way to its object store is a proxy."""
    endpoint = httpx.URL(store_url).params["endpoint"]
    address = httpx.URL(endpoint)
    assert address.port is not None
    with LinkLoop() as loop:
        proxy = proxy_of(loop, (address.host, address.port))
        environment = {
            "STELE_STORAGE": "shared",
            "STELE_POSTGRES_URL": server.dsn,
            "STELE_OBJECT_STORE": store_url.replace(endpoint, f"http://127.0.0.1:{proxy.port}"),
            # Its upkeep does in seconds what takes others a quarter of an hour.
            hooks.HOOK: hooks.INSTALL,
        }
        with run_broker(path, environment=environment) as broker:
            yield broker, proxy


def written_to(store_url: str) -> list[str]:
    return [one.key for one in asyncio.run(open_object_store(store_url).list_page("w/"))]


def test_a_broker_deletes_the_object_of_its_check_if_the_store_kept_it(
    server: PostgresServer, moto_url: str, tmp_path: Path
) -> None:
    # A prefix that no other test uses.
    store_url = moto_url.replace(f"{BUCKET}/moto", f"{BUCKET}/checked")

    def losing(loop: LinkLoop, target: tuple[str, int]) -> LosesAnswersToPuts:
        proxy = LosesAnswersToPuts(loop, "store", target, Random(0))
        proxy.mood = StoreMood(faults=(StoreFault.LOST_ANSWER,))
        return proxy

    with behind(losing, server, store_url, tmp_path) as (broker, proxy):
        assert "cannot be used" in broker.stderr
        assert [key.rpartition("/")[2] for key in written_to(store_url)] == ["check.5"]
        proxy.mood = StoreMood()
        eventually(lambda: not written_to(store_url), "the broker has deleted the object")


def test_a_broker_deletes_the_object_of_its_check_if_it_arrives_again_afterwards(
    own_server: PostgresServer, moto_url: str, tmp_path: Path
) -> None:
    store_url = moto_url.replace(f"{BUCKET}/moto", f"{BUCKET}/repeated")
    with behind(RepeatsThePutOfTheCheck, own_server, store_url, tmp_path) as (broker, proxy):
        assert "cannot be used" not in broker.stderr
        assert proxy.is_repeated.wait(60)
        eventually(lambda: not written_to(store_url), "the broker has deleted the object")


def test_a_broker_whose_bucket_does_not_exist_ends_with_what_to_do(
    server: PostgresServer, moto_url: str, tmp_path: Path
) -> None:
    environment = {
        "STELE_STORAGE": "shared",
        "STELE_POSTGRES_URL": server.dsn,
        "STELE_OBJECT_STORE": moto_url.replace(BUCKET, "missing"),
    }
    with (
        pytest.raises(BrokerStartError, match="the bucket does not exist: create it"),
        run_broker(tmp_path, environment=environment),
    ):
        pytest.fail("the broker started")


@pytest.mark.long
async def test_seaweedfs_refuses_wrong_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    if not WEED.exists():
        pytest.skip("SeaweedFS is not installed; run tests/integration/install_seaweedfs.sh")
    with running_seaweedfs(BUCKET, login=("right", "secret")) as url:
        for key, secret in (("right", "wrong"), ("unknown", "secret")):
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
            with pytest.raises(InvalidStorage, match="correct AWS_ACCESS_KEY_ID"):
                await check_store(open_object_store(url), url, uuid4())
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "right")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        while True:
            try:
                await check_store(open_object_store(url), url, uuid4())
                break
            except InvalidStorage as error:
                # SeaweedFS makes the bucket after it began to answer.
                if "does not exist" not in str(error):
                    raise
        elsewhere = url.replace(BUCKET, "missing")
        with pytest.raises(InvalidStorage, match="the bucket does not exist"):
            await check_store(open_object_store(elsewhere), elsewhere, uuid4())


class _Refusal(BaseHTTPRequestHandler):
    """Answers every request with one error, as S3 documents it."""

    answer = (403, b"")

    def do_GET(self) -> None:
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name in the base class


@contextmanager
def refusing(status: int, code: str, more: str = "", *, tls: ssl.SSLContext | None = None) -> Generator[str]:
    body = f"<Error><Code>{code}</Code><Message>m</Message>{more}</Error>".encode()
    handler = type("Refusal", (_Refusal,), {"answer": (status, body)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "more", "advice"),
    [
        (403, "RequestTimeTooSkewed", "", "the clock of this machine is wrong"),
        (
            400,
            "AuthorizationHeaderMalformed",
            "<Region>eu-central-1</Region>",
            r"add \?region=eu-central-1 to",
        ),
        (301, "PermanentRedirect", "", r"add \?region=REGION to"),
        (403, "SignatureDoesNotMatch", "", "correct AWS_ACCESS_KEY_ID"),
        (403, "AccessDenied", "", "s3:PutObject"),
    ],
)
async def test_a_mistake_in_the_set_up_of_the_store_is_explained(
    status: int, code: str, more: str, advice: str
) -> None:
    with refusing(status, code, more) as address:
        url = f"s3://records/stele?endpoint=http://{address}"
        with pytest.raises(InvalidStorage, match=advice):
            await check_store(open_object_store(url), url, uuid4())


@pytest.mark.parametrize(
    ("url", "code", "advice"),
    [
        (
            "gs://records/stele?endpoint=http://{}",
            "SignatureDoesNotMatch",
            "correct GOOGLE_APPLICATION_CREDENTIALS",
        ),
        ("gs://records/stele?endpoint=http://{}", "AccessDenied", "the role Storage Object User"),
        (
            "az://records/stele?account=a&endpoint=http://{}/a",
            "AuthenticationFailed",
            "correct AZURE_STORAGE_",
        ),
        (
            "az://records/stele?account=a&endpoint=http://{}/a",
            "AuthorizationPermissionMismatch",
            "Data Contributor",
        ),
        (
            "az://records/stele?account=a&endpoint=http://{}/a",
            "ContainerNotFound",
            "does not exist: create it",
        ),
    ],
)
async def test_a_mistake_in_the_set_up_of_another_provider_is_explained_in_its_names(
    url: str, code: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    with refusing(403, code) as address:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
        monkeypatch.setenv(
            "GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key | {"gcs_base_url": f"http://{address}"})
        )
        url = url.format(address)
        with pytest.raises(InvalidStorage, match=advice) as refused:
            await check_store(open_object_store(url), url, uuid4())
    assert "AWS_" not in str(refused.value)


async def test_tls_that_does_not_fit_is_explained(tmp_path: Path) -> None:
    with refusing(403, "AccessDenied") as address:
        url = f"s3://records?endpoint=https://{address}"
        with pytest.raises(InvalidStorage, match="does not speak TLS"):
            await check_store(open_object_store(url), url, uuid4())
    pair = Authority(tmp_path).server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate_file, pair.key_file)
    with refusing(403, "AccessDenied", tls=context) as address:
        url = f"s3://records?endpoint=https://{address}"
        with pytest.raises(InvalidStorage, match="is not trusted"):
            await check_store(open_object_store(url), url, uuid4())


async def test_an_outage_of_the_store_is_logged_and_the_broker_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for endpoint in ("http://127.0.0.1:1", "http://no-such-host.invalid"):
        caplog.clear()
        url = f"s3://records?endpoint={endpoint}"
        assert not (await check_store(open_object_store(url), url, uuid4())).is_usable
        assert "writes fail until then" in caplog.text
        assert "start the store" in caplog.text or "correct the host" in caplog.text
