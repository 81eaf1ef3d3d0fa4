"""S3 servers that tests start: moto, in a thread and in memory, and SeaweedFS, a process with files."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.documents import ROOT

BUCKET = "stele-tests"
_START_S = 60.0
_WEED = ROOT / ".seaweedfs" / "bin" / "weed"


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


def weed() -> Path:
    """Return the program of SeaweedFS. Without it the test is skipped; in CI it fails."""
    if _WEED.exists():
        return _WEED
    missing = "SeaweedFS is not installed; run tests/integration/install_seaweedfs.sh"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def seaweedfs() -> Generator[str]:
    """Run SeaweedFS, which syncs each PUT; yield the URL of a store in it."""
    program = weed()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-seaweedfs-")))
        names = (
            "admin.port",
            "admin.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "master.port",
            "master.port.grpc",
            "s3.port",
            "s3.port.grpc",
            "volume.port",
            "volume.port.grpc",
        )
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        log = stack.enter_context((home / "log").open("wb"))
        process = subprocess.Popen(
            [
                program,
                "mini",
                f"-dir={home}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-bucket={BUCKET}",
                "-admin.ui=false",
                "-webdav=false",
                "-master.telemetry=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                *(f"-{name}={port}" for name, port in ports.items()),
            ],
            cwd=home,
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(home)},
        )
        stack.callback(_stop, process)
        endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        _wait_until_it_serves(process, f"{endpoint}/{BUCKET}", home / "log")
        shell = subprocess.run(
            [program, "shell", f"-master=127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}"],
            input="fs.configure -locationPrefix=/buckets/ -fsync -apply\nexit\n",
            cwd=home,
            env={**os.environ, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
        )
        assert re.search(r'"fsync":\s+true', shell.stdout), shell.stdout + shell.stderr
        yield f"s3://{BUCKET}/weed?endpoint={endpoint}"


def _wait_until_it_serves(process: subprocess.Popen[bytes], bucket_url: str, log: Path) -> None:
    give_up_s = time.monotonic() + _START_S
    while True:
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < give_up_s, log.read_text(errors="replace")
        try:
            status = httpx.head(bucket_url).status_code
        except httpx.TransportError:
            status = 0
        # 403: it serves, and the bucket is there.
        if status in (200, 403):
            return
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
