"""S3 servers that tests start: moto, in a thread and in memory; SeaweedFS and versitygw, processes with files."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from load.seaweedfs import WEED, SeaweedMissing, running_seaweedfs

from .waiting import eventually

BUCKET = "stele-tests"
VERSITYGW = Path(__file__).resolve().parents[2] / ".versitygw" / "versitygw"


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
        missing = "versitygw is not installed: run tests/integration/install_versitygw.sh, which needs Go"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-versitygw-")))
        # A bucket is a directory.
        (home / "data" / BUCKET).mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port: int = probe.getsockname()[1]
        log = stack.enter_context((home / "log").open("wb"))
        process = subprocess.Popen(
            [VERSITYGW, "--port", f"127.0.0.1:{port}", "posix", home / "data"],
            stdout=log,
            stderr=log,
            env={**os.environ, "ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "test"},
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        url = f"http://127.0.0.1:{port}"

        def serves() -> bool:
            assert process.poll() is None, (home / "log").read_text(errors="replace")
            try:
                return httpx.get(f"{url}/{BUCKET}").status_code in (200, 403)
            except httpx.TransportError:
                return False

        eventually(serves, "versitygw serves its bucket")
        yield f"s3://{BUCKET}/versitygw?endpoint={url}"
