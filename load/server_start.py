"""Free ports for servers of other projects, and the wait until one of them serves."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import httpx

START_S = 60.0
# Between two looks at what nothing announces.
_LOOK_S = 0.05


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nothing listens on."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_until_it_serves(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until an S3 server answers at ``url``.

    Raises:
        AssertionError: with its log, if it ended, or did not answer within ``START_S``.
    """
    give_up_s = time.monotonic() + START_S
    while True:
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < give_up_s, log.read_text(errors="replace")
        try:
            status = httpx.head(url).status_code
        except httpx.TransportError:
            status = 0
        # 403: it serves, and asks for a login before it looks for a bucket.
        if status in (200, 403):
            return
        time.sleep(_LOOK_S)
