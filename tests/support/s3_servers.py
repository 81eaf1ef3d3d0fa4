"""S3 servers that tests start: moto, in a thread and in memory; SeaweedFS and versitygw, processes with files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import httpx
import pytest

from load.seaweedfs import WEED, SeaweedMissing, seaweedfs_server
from load.server_start import S3Server, free_ports

BUCKET = "stele-tests"
VERSITYGW = Path(__file__).resolve().parents[2] / ".versitygw" / "versitygw"


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
    with mortal_seaweedfs() as (url, _):
        yield url


@contextmanager
def mortal_seaweedfs() -> Generator[tuple[str, S3Server]]:
    """Run SeaweedFS as ``seaweedfs`` does; yield also the server, to be killed and started again."""
    if not WEED.exists():
        _skip(str(SeaweedMissing()))
    with seaweedfs_server(BUCKET) as (url, server):
        yield url, server


@contextmanager
def versitygw() -> Generator[str]:
    """Run versitygw over a directory; yield the URL of a store in it.

    Without it the test is skipped; in CI it fails.
    """
    with mortal_versitygw() as (url, _):
        yield url


@contextmanager
def mortal_versitygw() -> Generator[tuple[str, S3Server]]:
    """Run versitygw as ``versitygw`` does; yield also the server, to be killed and started again."""
    if not VERSITYGW.exists():
        _skip("versitygw is not installed: run tests/integration/install_versitygw.sh, which needs Go")
    with tempfile.TemporaryDirectory(prefix="stele-versitygw-") as folder:
        # A bucket is a directory.
        home = Path(folder)
        (home / "data" / BUCKET).mkdir(parents=True)
        (port,) = free_ports(1)
        server = S3Server(
            [VERSITYGW, "--port", f"127.0.0.1:{port}", "posix", home / "data"],
            endpoint=f"http://127.0.0.1:{port}",
            bucket=BUCKET,
            home=home,
            environment={"ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "test"},
        )
        try:
            server.start()
            yield f"s3://{BUCKET}/versitygw?endpoint={server.endpoint}", server
        finally:
            server.stop()


def _skip(missing: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
