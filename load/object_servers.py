"""S3 servers on free ports of this machine, for tests and benchmarks.

They differ in what they do with an object: SeaweedFS syncs it to the disk, versitygw writes it to a file without a
sync, and moto keeps it in memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from .seaweedfs import seaweedfs_server
from .server_start import START_S, free_ports, wait_until_it_serves

VERSITYGW = Path(__file__).resolve().parents[1] / ".versitygw" / "versitygw"
STORES = ("seaweedfs", "versitygw", "moto", "directory")


class VersitygwMissing(Exception):
    """The S3 server versitygw is not installed; the text says how to install it."""

    def __init__(self) -> None:
        super().__init__(
            "versitygw is not installed: run tests/integration/install_versitygw.sh, which needs Go"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectServer:
    """``url`` is that of a store; ``pid`` is None if the store is no process."""

    url: str
    pid: int | None


@contextmanager
def running_store(kind: str, *, bucket: str, parent: Path) -> Generator[ObjectServer]:
    """Run a store of ``STORES``; its files are in ``parent``.

    Raises:
        SeaweedMissing, VersitygwMissing: it is not installed.
    """
    if kind == "seaweedfs":
        with seaweedfs_server(bucket, parent=parent) as (url, pid):
            yield ObjectServer(url=url, pid=pid)
    elif kind == "versitygw":
        with versitygw_server(bucket, parent=parent) as server:
            yield server
    elif kind == "moto":
        with _moto_server(bucket, parent=parent) as server:
            yield server
    else:
        with tempfile.TemporaryDirectory(prefix="stele-objects-", dir=parent) as home:
            yield ObjectServer(url=f"file://{home}", pid=None)


@contextmanager
def versitygw_server(
    bucket: str, *, login: tuple[str, str] = ("stele", "stele"), parent: Path | None = None
) -> Generator[ObjectServer]:
    """Run versitygw over a directory.

    Raises:
        VersitygwMissing: it is not installed.
    """
    if not VERSITYGW.exists():
        raise VersitygwMissing
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-versitygw-", dir=parent)))
        # A bucket is a directory.
        (home / "data" / bucket).mkdir(parents=True)
        (port,) = free_ports(1)
        key, secret = login
        process = _run(
            stack,
            [str(VERSITYGW), "--port", f"127.0.0.1:{port}", "posix", str(home / "data")],
            home / "log",
            {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret},
        )
        endpoint = f"http://127.0.0.1:{port}"
        wait_until_it_serves(process, f"{endpoint}/{bucket}", home / "log")
        yield ObjectServer(url=f"s3://{bucket}/versitygw?endpoint={endpoint}", pid=process.pid)


@contextmanager
def _moto_server(bucket: str, *, parent: Path) -> Generator[ObjectServer]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-moto-", dir=parent)))
        (port,) = free_ports(1)
        process = _run(
            stack,
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            home / "log",
            {},
        )
        endpoint = f"http://127.0.0.1:{port}"
        wait_until_it_serves(process, endpoint, home / "log")
        httpx.put(f"{endpoint}/{bucket}", timeout=START_S).raise_for_status()
        yield ObjectServer(url=f"s3://{bucket}/moto?endpoint={endpoint}", pid=process.pid)


def _run(
    stack: ExitStack, command: list[str], log_path: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    log = stack.enter_context(log_path.open("wb"))
    process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process
