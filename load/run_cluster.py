"""``make cluster``: PostgreSQL, an S3 server and three brokers on this machine, until ctrl-c.

All data are in one temporary directory, which is deleted at the end. A broker that is killed stays down
until Enter is pressed, so that its failover can be watched.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import IO

import httpx
from stele.broker_process import BrokerProcess, BrokerStartError, Process

from load.postgres_server import PostgresMissing, PostgresServer, find_bin
from load.seaweedfs import SeaweedMissing, running_seaweedfs

_HTTP_PORT, _BINARY_PORT, _KAFKA_PORT, _REGISTRY_PORT = 8081, 9011, 9093, 8091
_COORDINATOR_S = 30.0
# What the main thread waits for.
_STOP, _START = "stop", "start"


class _Stopped(Exception):
    """Ctrl-C was pressed during the start."""


class _Broker(BrokerProcess):
    """A broker in a session of its own: ctrl-c stops it in order, not together with its database."""

    def spawn(self, arguments: list[str], stderr: IO[bytes], environment: Mapping[str, str]) -> Process:
        return subprocess.Popen(
            [sys.executable, "-m", "stele.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )


class Cluster:
    """The processes of a cluster. ``events`` receives ``stop`` and ``start``."""

    def __init__(self, options: argparse.Namespace, events: SimpleQueue[str]) -> None:
        self._options = options
        self._events = events

    def run(self) -> None:
        """Start everything, wait for ctrl-c, and stop everything.

        Raises:
            PostgresMissing, SeaweedMissing: it is not installed.
            BrokerStartError: a broker did not start.
        """
        with ExitStack() as stack:
            # Not in TMPDIR: the path of PostgreSQL's socket must be short.
            home = Path(stack.enter_context(TemporaryDirectory(prefix="stele-cluster-", dir="/tmp")))
            # PostgreSQL does not run as root, and its user has to get there.
            home.chmod(0o755)
            with suppress(_Stopped):
                self._serve(stack, home)
            _say("stopping")

    def _serve(self, stack: ExitStack, home: Path) -> None:
        _say("starting PostgreSQL")
        postgres = stack.enter_context(PostgresServer(find_bin(), parent=home))
        store = "inline"
        if not self._options.inline:
            self._check_stopped()
            _say("starting the S3 server SeaweedFS")
            store = stack.enter_context(running_seaweedfs(parent=home))
        brokers: list[BrokerProcess] = []
        stack.callback(_stop_brokers, brokers)
        for number in range(1, self._options.brokers + 1):
            self._check_stopped()
            _say(f"starting broker {number}")
            broker = self._broker(home, number, postgres.dsn, store)
            broker.start()
            brokers.append(broker)
        coordinator = _coordinator(brokers)
        _explain(home, brokers, coordinator, postgres.dsn, store)
        while self._events.get() != _STOP:
            _start_again(brokers)

    def _check_stopped(self) -> None:
        while not self._events.empty():
            if self._events.get() == _STOP:
                raise _Stopped

    def _broker(self, home: Path, number: int, postgres_url: str, store: str) -> BrokerProcess:
        # BrokerProcess lets the system choose; later arguments override its own.
        first = {"http": _HTTP_PORT, "binary": _BINARY_PORT, "kafka": _KAFKA_PORT, "registry": _REGISTRY_PORT}
        ports = [f"--{name}-port={port + number - 1}" for name, port in first.items()]
        environment = {
            "STELE_STORAGE": "shared",
            "STELE_POSTGRES_URL": postgres_url,
            "STELE_OBJECT_STORE": store,
            "STELE_BROKER_ID": str(number),
            "STELE_BROKER_RACK": f"rack-{number}",
            # The S3 server accepts any.
            "AWS_ACCESS_KEY_ID": os.environ.get("AWS_ACCESS_KEY_ID", "stele"),
            "AWS_SECRET_ACCESS_KEY": os.environ.get("AWS_SECRET_ACCESS_KEY", "stele"),
        }
        arguments = [] if self._options.free_ports else ports
        return _Broker(home / f"broker-{number}", arguments=arguments, environment=environment)


def _stop_brokers(brokers: Sequence[BrokerProcess]) -> None:
    """Stop the running brokers one after another.

    The last one leaves an empty cluster.
    """
    for number, broker in enumerate(brokers, 1):
        if broker.is_running:
            try:
                broker.stop()
            except TimeoutError as error:
                _say(f"broker {number} was killed: {error}")


def _start_again(brokers: Sequence[BrokerProcess]) -> None:
    for number, broker in enumerate(brokers, 1):
        if broker.is_running:
            continue
        try:
            broker.start()
        except BrokerStartError as error:
            _say(f"broker {number} did not start: {error}")
        else:
            _say(f"broker {number} runs again, process {broker.pid}")


def _coordinator(brokers: Sequence[BrokerProcess]) -> int:
    """Return the number of a broker that coordinates consumer groups."""
    give_up_s = time.monotonic() + _COORDINATOR_S
    while time.monotonic() < give_up_s:
        leases = httpx.get(f"{brokers[0].http_url}/v1/cluster").json()["leases"]
        holders = [lease["broker_id"] for name, lease in leases.items() if name.startswith("groups-")]
        if holders:
            return int(holders[0])
        time.sleep(0.1)
    raise BrokerStartError(
        "no broker has taken the lease on the consumer groups; see the logs of the brokers"
    )


def _explain(
    home: Path, brokers: Sequence[BrokerProcess], coordinator: int, postgres_url: str, store: str
) -> None:
    lines = [
        "",
        f"data         {home}",
        f"PostgreSQL   {postgres_url}",
        f"objects      {'in PostgreSQL' if store == 'inline' else store}",
        *(
            f"broker {number}     {broker.http_url}  {broker.binary_url}  kafka {broker.kafka_bootstrap}"
            f"  process {broker.pid}"
            for number, broker in enumerate(brokers, 1)
        ),
        "",
        # Of a broker that survives what the last line suggests.
        f"console      {brokers[coordinator % len(brokers)].http_url}/console/cluster",
        f"Kafka        bootstrap.servers={','.join(broker.kafka_bootstrap for broker in brokers)}",
        f"registry     schema.registry.url={','.join(broker.registry_url for broker in brokers)}",
        f"members      curl -s {brokers[coordinator % len(brokers)].http_url}/v1/cluster",
        f"failover     kill -9 {brokers[coordinator - 1].pid}  (broker {coordinator}; the others"
        " take over its consumer groups within 6 seconds)",
        "",
        "Enter starts killed brokers again. Ctrl-C stops everything and deletes the data.",
    ]
    _say("\n".join(lines))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _read_lines(events: SimpleQueue[str]) -> None:
    for _ in sys.stdin:
        events.put(_START)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m load.run_cluster", description=__doc__)
    parser.add_argument("--inline", action="store_true", help="keep the records in PostgreSQL, without S3")
    parser.add_argument("--brokers", type=int, choices=range(1, 10), default=3, help="default: 3")
    parser.add_argument("--free-ports", action="store_true", help="let the system choose the ports")
    return parser.parse_args()


def main() -> int:
    options = _options()
    # A put into this queue is safe in a signal handler.
    events: SimpleQueue[str] = SimpleQueue()

    def stop(*_: object) -> None:
        events.put(_STOP)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    threading.Thread(target=_read_lines, args=(events,), name="stele-cluster-stdin", daemon=True).start()
    try:
        Cluster(options, events).run()
    except (PostgresMissing, SeaweedMissing, BrokerStartError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
