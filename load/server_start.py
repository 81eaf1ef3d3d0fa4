"""Free ports for servers of other projects, and the wait until one of them serves."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
from stele.broker_process import hold_port

START_S = 60.0
# Between two looks at what nothing announces.
_LOOK_S = 0.05


class _Holder:
    """The server that ports are held for."""


_THIS_PROCESS = _Holder()


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return different ports that nothing listens on.

    On Linux no other process gets one until this process ends; servers that set SO_REUSEADDR, as nearly all do, can
    listen there at any time, again after a kill, too.
    """
    # A local holder ends with the call.
    holder = _THIS_PROCESS if sys.platform == "linux" else _Holder()
    return [hold_port(holder, host) for _ in range(count)]


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
