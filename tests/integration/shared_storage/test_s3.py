"""S3 servers do what every object store must do, through obstore."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator

import pytest

from app.storage.shared.store.object_store import ByteRange, ObjectStore, ObjectStoreError
from app.storage.shared.store.urls import open_object_store
from tests.support.object_store_contract import LongListingContract, ObjectStoreContract
from tests.support.s3_servers import moto, seaweedfs, use_test_credentials, versitygw


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_test_credentials(patch)
        yield


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture(scope="module")
def seaweedfs_url() -> Iterator[str]:
    with seaweedfs() as url:
        yield url


@pytest.fixture(scope="module")
def versitygw_url() -> Iterator[str]:
    with versitygw() as url:
        yield url


class TestMoto(ObjectStoreContract):
    @pytest.fixture
    def store(self, moto_url: str) -> ObjectStore:
        return open_object_store(moto_url)


@pytest.mark.slow
class TestSeaweedFS(ObjectStoreContract):
    @pytest.fixture
    def store(self, seaweedfs_url: str) -> ObjectStore:
        return open_object_store(seaweedfs_url)


@pytest.mark.long
class TestVersitygw(ObjectStoreContract):
    @pytest.fixture
    def store(self, versitygw_url: str) -> ObjectStore:
        return open_object_store(versitygw_url)


@pytest.mark.long
class TestLongListingOfMoto(LongListingContract):
    @pytest.fixture
    def store(self, moto_url: str) -> ObjectStore:
        return open_object_store(moto_url)


@pytest.mark.long
class TestLongListingOfSeaweedFS(LongListingContract):
    @pytest.fixture
    def store(self, seaweedfs_url: str) -> ObjectStore:
        return open_object_store(seaweedfs_url)


async def test_a_bucket_that_does_not_exist_is_an_error_of_the_store(moto_url: str) -> None:
    store = open_object_store(moto_url.replace("stele-tests", "no-such-bucket"))
    with pytest.raises(ObjectStoreError):
        await store.put("w/1", b"bytes")


async def test_a_server_that_is_not_there_is_an_error_of_the_store() -> None:
    store = open_object_store("s3://bucket?endpoint=http://127.0.0.1:1")
    with pytest.raises(ObjectStoreError):
        await store.get_ranges("w/1", [ByteRange(0, 1)])


@pytest.mark.parametrize(
    ("option", "is_signed"), [("", True), ("&payload=signed", True), ("&payload=unsigned", False)]
)
async def test_the_payload_of_a_put_without_tls_is_signed_unless_the_url_says_otherwise(
    option: str, is_signed: bool
) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b'HTTP/1.1 200 OK\r\netag: "1"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n')
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store = open_object_store(f"s3://bucket?endpoint=http://127.0.0.1:{port}{option}")
        await store.put("w/1", b"bytes")
    (head,) = heads
    (signed,) = [line for line in head.split(b"\r\n") if line.lower().startswith(b"x-amz-content-sha256:")]
    sha256 = hashlib.sha256(b"bytes").hexdigest().encode()
    assert signed.partition(b":")[2].strip() == (sha256 if is_signed else b"UNSIGNED-PAYLOAD")
