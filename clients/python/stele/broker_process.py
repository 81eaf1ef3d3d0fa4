"""Run a real broker in a child process, on free ports, for tests and tools."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, Protocol
from urllib.parse import quote

_CATALOG = "metadata.sqlite"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
# Of its stderr: what ``stderr`` has, and what an error shows.
_STDERR_BYTES_MAX = 1 << 20
_STDERR_SHOWN = 8000
# In a test all consumers start at once; Kafka's delay would cost every group 3 s.
_FOR_TESTS = {"STELE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
_READY = re.compile(
    r"^stele ready http=(\S+):(\d+) binary=(\S+):(\d+) kafka=(\S+):(\d+)(?: registry=(\S+):(\d+))? data="
)


class Process(Protocol):
    """The part of ``subprocess.Popen`` that ``BrokerProcess`` uses."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...
    def kill(self) -> None: ...


class BrokerStartError(RuntimeError):
    """The broker did not become ready; the message has its stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTls:
    """The TLS of all listeners of a broker, and the CA that its clients trust; files in PEM."""

    certificate_file: Path
    key_file: Path
    ca_file: Path
    client_auth: Literal["none", "requested", "required"] = "none"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "STELE_TLS_CERTIFICATE_FILE": str(self.certificate_file),
            "STELE_TLS_KEY_FILE": str(self.key_file),
            "STELE_TLS_CLIENT_AUTH": self.client_auth,
            "STELE_TLS_CLIENT_CA_FILE": str(self.ca_file),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogin:
    """A user of a broker all of whose listeners require logins; access rules do not hold for it."""

    user: str = "test"
    password: str = field(default="a-password-for-tests", repr=False)


def hold_port(owner: object, host: str) -> int:
    """Return a free port that is held for ``owner`` as long as it lives.

    A socket that is bound and does not listen keeps it from being chosen for other processes, also as the local
    port of a connection, and lets a listener in that sets SO_REUSEADDR, as the broker does.
    """
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    port = held.getsockname()[1]
    weakref.finalize(owner, os.close, held.detach())
    return port


class BrokerProcess:
    """A broker process and its URLs.

    ``restart`` keeps the data directory and the ports, so that clients reconnect. The
    settings are the defaults, except that ``group_initial_rebalance_delay_ms`` is 0;
    ``environment`` overrides them.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: BrokerTls | None = None,
        login: BrokerLogin | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self.data_dir = data_dir
        self.tls = tls
        self.login = login
        self.host: str = "127.0.0.1"
        self.http_port: int = 0
        self.binary_port: int = 0
        self.kafka_port: int = 0
        self.registry_port: int = 0
        self._arguments = list(arguments)
        self._environment = {
            **({} if tls is None else tls.environment),
            **(
                {}
                if login is None
                else {"STELE_AUTHENTICATION": "required", "STELE_SUPER_USERS": f"User:{login.user}"}
            ),
            **(environment or {}),
        }
        self._start_timeout_s = start_timeout_s
        self._process: Process | None = None
        self._stderr_path = data_dir.parent / f"{data_dir.name}.stderr"

    @property
    def http_url(self) -> str:
        """``https://`` if the broker has TLS; without the options of a URL, so that paths can be added."""
        return self._http(self.http_port)

    @property
    def binary_url(self) -> str:
        if self.tls is None:
            return f"stele://{self._userinfo}{self.host}:{self.binary_port}"
        return f"stele+tls://{self._userinfo}{self.host}:{self.binary_port}?ca_file={quote(str(self.tls.ca_file))}"

    @property
    def registry_url(self) -> str:
        """The URL of the schema registry; as ``http_url``."""
        return self._http(self.registry_port)

    def _http(self, port: int) -> str:
        return f"{'http' if self.tls is None else 'https'}://{self._userinfo}{self.host}:{port}"

    @property
    def _userinfo(self) -> str:
        return (
            ""
            if self.login is None
            else f"{quote(self.login.user, safe='')}:{quote(self.login.password, safe='')}@"
        )

    @property
    def kafka_bootstrap(self) -> str:
        """``host:port`` for the bootstrap servers of Kafka clients."""
        return f"{self.host}:{self.kafka_port}"

    @property
    def pid(self) -> int:
        """The process id. Raises RuntimeError if the broker is not running."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        # Another thread may end it meanwhile.
        process = self._process
        return process is not None and process.poll() is None

    @property
    def stderr(self) -> str:
        """The last MiB of its stderr, over all starts."""
        if not self._stderr_path.exists():
            return ""
        with self._stderr_path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _STDERR_BYTES_MAX))
            return file.read().decode(errors="replace")

    def start(self) -> None:
        """Start the broker and wait until it is ready.

        Raises:
            BrokerStartError: it exited, or was not ready within ``start_timeout_s``.
        """
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self._hold_ports()
        # Settings of the shell must not leak into a broker under test.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STELE_")}
        environment = {**inherited, "PYTHONUNBUFFERED": "1", **_FOR_TESTS, **self._environment}
        if self.login is not None and not (self.data_dir / _CATALOG).exists():
            self._add_user(self.login, environment)
        arguments = ["serve", "--data-dir", str(self.data_dir)]
        arguments += ["--host", self.host, "--http-port", str(self.http_port)]
        arguments += ["--binary-port", str(self.binary_port), "--kafka-port", str(self.kafka_port)]
        arguments += ["--registry-port", str(self.registry_port)]
        arguments += self._arguments
        with self._stderr_path.open("ab") as stderr:
            process = self.spawn(arguments, stderr, environment)
        self._process = process
        ready = self._await_ready(process)
        if ready is None:
            has_ended = process.poll() is not None
            self._end(signal.SIGKILL)
            why = f"ended with {process.returncode}" if has_ended else "was not ready in time"
            raise BrokerStartError(f"the broker {why}; its stderr:\n{self.stderr[-_STDERR_SHOWN:]}")
        self.host, self.http_port = ready[1], int(ready[2])
        self.binary_port = int(ready[4])
        self.kafka_port = int(ready[6])
        # Unless it is turned off.
        self.registry_port = int(ready[8] or self.registry_port)

    def _hold_ports(self) -> None:
        """Choose the ports that are still open; elsewhere than on Linux the broker does that.

        They are kept while the broker is down: otherwise another process may have one when it starts again.
        """
        if sys.platform != "linux":
            return
        self.http_port = self.http_port or hold_port(self, self.host)
        self.binary_port = self.binary_port or hold_port(self, self.host)
        self.kafka_port = self.kafka_port or hold_port(self, self.host)
        self.registry_port = self.registry_port or hold_port(self, self.host)

    def _add_user(self, login: BrokerLogin, environment: Mapping[str, str]) -> None:
        with self._stderr_path.open("ab") as stderr:
            process = self.spawn(
                ["user", "add", login.user, "--data-dir", str(self.data_dir)],
                stderr,
                {**environment, "STELE_PASSWORD": login.password},
            )
        if process.stdout is not None:
            with process.stdout:
                process.stdout.read()
        if process.wait(self._start_timeout_s):
            raise BrokerStartError(
                f"the user could not be added; the stderr:\n{self.stderr[-_STDERR_SHOWN:]}"
            )

    def spawn(self, arguments: list[str], stderr: IO[bytes], environment: Mapping[str, str]) -> Process:
        """Run ``stele`` with ``arguments`` in a new process, with a pipe as its stdout."""
        return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-m", "stele.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
        )

    def _await_ready(self, process: Process) -> re.Match[str] | None:
        matches: list[re.Match[str]] = []
        is_decided = threading.Event()

        def read() -> None:
            # Continue after the ready line, because a full pipe would block the broker.
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    if match := _READY.match(line.decode(errors="replace")):
                        matches.append(match)
                        is_decided.set()
            is_decided.set()

        threading.Thread(target=read, name="stele-broker-stdout", daemon=True).start()
        is_decided.wait(self._start_timeout_s)
        if not matches and process.poll() is None:
            # Its stdout closed, so it is exiting; the exit code says more than a timeout.
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                return None
        return matches[0] if matches else None

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Send SIGTERM and return the exit code, negative for a signal.

        Raises:
            TimeoutError: it was still running after ``timeout_s``, and was killed.
        """
        return self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Send SIGKILL: nothing is finished or flushed."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the broker if it runs, and start it with the same ports and data."""
        if self.is_running:
            self.stop()
        self.start()

    def _end(self, number: signal.Signals, timeout_s: float = STOP_TIMEOUT_S) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError(
                f"the broker did not stop within {timeout_s:g} s; its stderr:\n{self.stderr[-_STDERR_SHOWN:]}"
            ) from None


@contextmanager
def run_broker(
    data_dir: Path | str | None = None,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    tls: BrokerTls | None = None,
    login: BrokerLogin | None = None,
    start_timeout_s: float = START_TIMEOUT_S,
) -> Generator[BrokerProcess]:
    """Run a broker; delete its data afterwards unless ``data_dir`` is given.

    ``arguments`` are passed to ``stele serve``; ``environment`` is added to its own. With
    ``tls``, all listeners have it, and ``binary_url`` names the CA file. With ``login``, all
    listeners require logins, the user is created, and both URLs log in as that user.

    Raises:
        BrokerStartError: the broker did not become ready.
    """
    with tempfile.TemporaryDirectory(prefix="stele-") as scratch:
        broker = BrokerProcess(
            Path(scratch) / "data" if data_dir is None else Path(data_dir),
            arguments=arguments,
            environment=environment,
            tls=tls,
            login=login,
            start_timeout_s=start_timeout_s,
        )
        broker.start()
        try:
            yield broker
        finally:
            if broker.is_running:
                broker.stop()
