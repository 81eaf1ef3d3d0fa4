"""Run SeaweedFS, an S3 server with files, on free ports of this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .server_start import START_S, S3Server, free_ports

BUCKET = "stele"
WEED = Path(__file__).resolve().parents[1] / ".seaweedfs" / "bin" / "weed"


class SeaweedMissing(Exception):
    """SeaweedFS is not installed; the text says how to install it."""

    def __init__(self) -> None:
        super().__init__("SeaweedFS is not installed; run tests/integration/install_seaweedfs.sh")


@contextmanager
def running_seaweedfs(
    bucket: str = BUCKET, *, parent: Path | None = None, login: tuple[str, str] | None = None
) -> Generator[str]:
    """Run SeaweedFS, which syncs each PUT; yield the URL of a store in it.

    Its files are in a temporary directory, in ``parent`` if given. ``login`` is the only access key and its secret;
    without it, any are accepted.

    Raises:
        SeaweedMissing: it is not installed.
    """
    with seaweedfs_server(bucket, parent=parent, login=login) as (url, _):
        yield url


@contextmanager
def seaweedfs_server(
    bucket: str = BUCKET, *, parent: Path | None = None, login: tuple[str, str] | None = None
) -> Generator[tuple[str, S3Server]]:
    """Run SeaweedFS as ``running_seaweedfs`` does; yield also the server."""
    if not WEED.exists():
        raise SeaweedMissing
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stele-seaweedfs-", dir=parent)))
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
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        identities: list[str] = []
        if login is not None:
            key, secret = login
            config = home / "identities.json"
            identity = {
                "name": key,
                "credentials": [{"accessKey": key, "secretKey": secret}],
                "actions": ["Admin"],
            }
            config.write_text(json.dumps({"identities": [identity]}))
            identities = [f"-s3.config={config}"]
        server = S3Server(
            [
                WEED,
                "mini",
                f"-dir={home}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-bucket={bucket}",
                "-admin.ui=false",
                "-webdav=false",
                "-master.telemetry=false",
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                *identities,
                *(f"-{name}={port}" for name, port in ports.items()),
            ],
            endpoint=f"http://127.0.0.1:{ports['s3.port']}",
            bucket=bucket,
            home=home,
            environment={"HOME": str(home)},
        )
        stack.callback(server.stop)
        server.start()
        _sync_each_put(f"127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}", bucket, home)
        yield f"s3://{bucket}/weed?endpoint={server.endpoint}", server


def _sync_each_put(master: str, bucket: str, home: Path) -> None:
    """Return when the bucket is there, and its files are synced."""
    give_up_s = time.monotonic() + 3 * START_S
    while True:
        shell = subprocess.run(
            [WEED, "shell", f"-master={master}"],
            input="fs.configure -locationPrefix=/buckets/ -fsync -apply\ns3.bucket.list\nexit\n",
            cwd=home,
            env={**os.environ, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert re.search(r'"fsync":\s+true', shell.stdout), shell.stdout + shell.stderr
        if re.search(rf"^ *{re.escape(bucket)}\t", shell.stdout, re.MULTILINE):
            return
        assert time.monotonic() < give_up_s, shell.stdout + shell.stderr
