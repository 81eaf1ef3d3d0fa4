"""S3 servers that tests start: moto, in a thread and in memory; SeaweedFS and versitygw, processes with files."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest

from load.object_servers import VERSITYGW, VersitygwMissing, versitygw_server
from load.seaweedfs import WEED, SeaweedMissing, running_seaweedfs

BUCKET = "stele-tests"


@contextmanager
def store_settings(kind: str) -> Generator[dict[str, str]]:
    """Yield the environment of brokers that keep their records in ``inline`` or in ``seaweedfs``."""
    if kind == "inline":
        yield {}
        return
    with pytest.MonkeyPatch.context() as patch, seaweedfs() as url:
        use_test_credentials(patch)
        yield {"STELE_OBJECT_STORE": url, "STELE_SHARED_LINGER_MS": "20"}


def use_test_credentials(patch: pytest.MonkeyPatch) -> None:
    """Set the credentials of the environment; the servers accept any."""
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@contextmanager
def moto() -> Generator[str]:
    """Run moto; yield the URL of a store in it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        httpx.put(f"http://{host}:{port}/{BUCKET}", timeout=60).raise_for_status()
        yield f"s3://{BUCKET}/moto?endpoint=http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def seaweedfs() -> Generator[str]:
    """Run SeaweedFS; yield the URL of a store in it. Without it the test is skipped; in CI it fails."""
    if not WEED.exists():
        missing = str(SeaweedMissing())
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with running_seaweedfs(BUCKET) as url:
        yield url


@contextmanager
def versitygw() -> Generator[str]:
    """Run versitygw; yield the URL of a store in it. Without it the test is skipped; in CI it fails."""
    if not VERSITYGW.exists():
        missing = str(VersitygwMissing())
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with versitygw_server(BUCKET, login=("test", "test")) as server:
        yield server.url
