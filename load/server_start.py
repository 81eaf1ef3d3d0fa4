"""Free ports for servers of other projects, and S3 servers that can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
from stele.broker_process import hold_port

START_S = 60.0
_STOP_S = 20
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


class S3Server:
    """An S3 server, which has the same port and the same files at each start.

    ``endpoint`` is its URL, and ``bucket`` a bucket of it. It logs to ``log`` in ``home``, its working directory.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        endpoint: str,
        bucket: str,
        home: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.endpoint = endpoint
        self.bucket = bucket
        self._command = command
        self._home = home
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Return when it serves."""
        log = self._home / "log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._home,
                stdout=output,
                stderr=output,
                env=self._environment,
                # Ctrl-C in a terminal reaches every process of a group; this one is stopped last.
                start_new_session=True,
            )
        wait_until_it_serves(self._process, f"{self.endpoint}/{self.bucket}", log)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
            self.kill()
