"""Servers of other providers' protocols that tests start: Azurite for Azure, SeaweedFS for Google Cloud."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest

from load.server_start import START_S, free_ports
from tests.support.s3_servers import BUCKET as S3_BUCKET
from tests.support.s3_servers import seaweedfs

ROOT = Path(__file__).resolve().parents[2]
AZURITE = ROOT / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
BUCKET = "stele-tests"
# Those of every Azurite.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_API_VERSION = "2023-11-03"
_LOOK_S = 0.05


@contextmanager
def azurite() -> Generator[str]:
    """Run Azurite, with its credentials in the environment; yield the URL of a store in it.

    Without it the test is skipped; in CI it fails.
    """
    _require(AZURITE, "install_azurite.sh, which needs npm")
    with tempfile.TemporaryDirectory(prefix="stele-azurite-") as home, pytest.MonkeyPatch.context() as patch:
        (port,) = free_ports(1)
        address = f"http://127.0.0.1:{port}"
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _KEY)
        patch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        patch.setenv("AZURITE_BLOB_STORAGE_URL", address)
        command = [str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", home]
        with _running([*command, "--skipApiVersionCheck", "--disableTelemetry"], Path(home) / "log", address):
            _make_container(address)
            yield f"az://{BUCKET}/azurite?account={_ACCOUNT}&endpoint={address}/{_ACCOUNT}"


@contextmanager
def google_cloud() -> Generator[str]:
    """Run SeaweedFS, whose S3 interface has what the client of Google Cloud uses of its XML interface.

    Yield the URL of a store in it. The key of the service account in the environment asks for no token. Without
    SeaweedFS the test is skipped; in CI it fails.
    """
    key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    with seaweedfs() as url, pytest.MonkeyPatch.context() as patch:
        endpoint = url.partition("endpoint=")[2]
        patch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(key | {"gcs_base_url": endpoint}))
        yield f"gs://{S3_BUCKET}/google?endpoint={endpoint}"


def _require(program: Path, script: str) -> None:
    if not program.exists():
        missing = f"{program.name} is not installed: run tests/integration/{script}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)


@contextmanager
def _running(command: Sequence[str], log: Path, address: str) -> Generator[None]:
    """Run a server until it answers at ``address``, whatever it says, and stop it in the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            give_up_s = time.monotonic() + START_S
            while True:
                assert process.poll() is None, log.read_text(errors="replace")
                assert time.monotonic() < give_up_s, log.read_text(errors="replace")
                try:
                    httpx.get(address)
                except httpx.TransportError:
                    time.sleep(_LOOK_S)
                else:
                    break
            yield
        finally:
            process.terminate()
            process.wait()


def _make_container(address: str) -> None:
    """Make the container, signed with the key of the account as the REST interface of Azure asks."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API_VERSION}
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container"
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    # Eleven standard headers, all of them empty.
    signed = "PUT\n" + "\n" * 11 + named + resource
    digest = hmac.digest(base64.b64decode(_KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}"
    url = f"{address}/{_ACCOUNT}/{BUCKET}?restype=container"
    httpx.put(url, headers=headers, timeout=START_S).raise_for_status()
