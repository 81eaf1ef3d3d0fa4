"""The services of compose.yaml, and its S3 server as a process, with its own commands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from load.seaweedfs import WEED, SeaweedMissing
from load.server_start import free_ports
from tests.support.documents import ROOT

_SETUP_S = 120


def profile(name: str) -> dict[str, dict[str, Any]]:
    """Return the services of a profile, with the defaults of variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "compose.yaml").read_text())
    services = cast("dict[str, dict[str, Any]]", yaml.safe_load(text)["services"])
    return {key: service for key, service in services.items() if name in service.get("profiles", ())}


@contextmanager
def profile_store(services: dict[str, dict[str, Any]], name: str, path: Path) -> Generator[str]:
    """Run the services of the store of profile ``name`` with their own commands; yield its address."""
    if not WEED.exists():
        missing = str(SeaweedMissing())
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    path.mkdir()
    host = f"{name}-store"
    parts = ("s3", "master", "filer", "volume", "admin")
    kinds = [f"{part}.port{suffix}" for part in parts for suffix in ("", ".grpc")]
    ports = dict(zip(kinds, free_ports(len(kinds)), strict=True))
    replaced: dict[str, str] = {"-dir=/data": f"-dir={path}", f"-ip={host}": "-ip=127.0.0.1"}
    arguments: list[str] = services[host]["command"]
    assert set(replaced) <= set(arguments)
    command = [replaced.get(argument, argument) for argument in arguments]
    assert services[host]["entrypoint"] == ["weed"]
    with (path / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(WEED), *command, *(f"-{port}={number}" for port, number in ports.items())],
            cwd=path,
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(path)},
            start_new_session=True,
        )
    try:
        setup = services[f"{host}-setup"]
        (script,) = setup["command"]
        assert f"{host}:9333" in script
        script = script.replace(
            f"{host}:9333", f"127.0.0.1:{ports['master.port']}.{ports['master.port.grpc']}"
        )
        subprocess.run(
            [*setup["entrypoint"], script],
            cwd=path,
            env={**os.environ, "HOME": str(path), "PATH": f"{WEED.parent}:{os.environ['PATH']}"},
            timeout=_SETUP_S,
            check=True,
        )
        yield f"127.0.0.1:{ports['s3.port']}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
