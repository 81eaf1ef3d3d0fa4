"""Measure how long a failed broker interrupts change data capture.

``python -m load.bench_cdc_takeover`` runs two brokers on one PostgreSQL server, whose changes one of them captures.
In each round that broker is killed (SIGKILL) or paused (SIGSTOP), while rows are inserted. It measures the time from
the signal until the other broker has the lease of the connector, and until it serves the first row that was
inserted after the signal.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stele import Client
from stele.broker_process import BrokerProcess, BrokerStartError
from stele.errors import SteleClientError

from .captured_table import TABLE, TOPIC, Inserts, connector_state, create_table, lease_holder
from .pausing import pause, resume
from .postgres_server import PostgresMissing, PostgresServer, find_bin

_TIMEOUT_S = 120.0
_LOOK_S = 0.02
# Rows per second; each is a transaction.
_RATE = 50


class _Brokers:
    """Two brokers that share a connector."""

    def __init__(self, server: PostgresServer, home: Path) -> None:
        self._processes = [
            BrokerProcess(
                home / f"broker-{number}",
                arguments=["--log-level", "error"],
                environment={
                    "STELE_STORAGE": "shared",
                    "STELE_POSTGRES_URL": server.dsn,
                    "STELE_BROKER_ID": str(number),
                    "STELE_CDC_DSN": server.dsn,
                    "STELE_CDC_TABLES": TABLE,
                },
            )
            for number in (1, 2)
        ]

    def __getitem__(self, number: int) -> BrokerProcess:
        return self._processes[number - 1]

    def start(self) -> None:
        for process in self._processes:
            process.start()

    def stop(self) -> None:
        for process in self._processes:
            process.stop()

    def settled(self) -> int:
        """Wait until one broker captures and the other stands by; return the first."""
        until_s = time.monotonic() + _TIMEOUT_S
        while True:
            states = {number: connector_state(self[number]) for number in (1, 2)}
            for number in (1, 2):
                if states[number] == "streaming" and states[3 - number] == "standby":
                    return number
            if time.monotonic() > until_s:
                raise TimeoutError(f"the connector does not settle: {states}")
            time.sleep(_LOOK_S)


class _Reader:
    """Reads the topic of the table from one broker."""

    def __init__(self) -> None:
        self._offset = 0

    def wait_for_row(self, broker: BrokerProcess, row: int) -> None:
        """Return as soon as the broker serves ``row`` or a later one."""
        until_s = time.monotonic() + _TIMEOUT_S
        with Client(broker.binary_url, timeout_s=10) as client:
            while time.monotonic() < until_s:
                try:
                    page = client.fetch(TOPIC, 0, self._offset, wait_ms=100, max_records=10_000)
                except SteleClientError as error:
                    if not error.retriable:
                        raise
                    time.sleep(_LOOK_S)
                    continue
                self._offset = page.next_offset
                if any(int(record.key or b"-1") >= row for record in page.records):
                    return
        raise TimeoutError(f"row {row} was not captured")


def _round(brokers: _Brokers, inserts: Inserts, reader: _Reader, signal_number: int) -> tuple[float, float]:
    """Let the capturing broker fail; return the times to lease and first change."""
    failing = brokers.settled()
    other = 3 - failing
    reader.wait_for_row(brokers[other], inserts.count)
    begun_s = time.monotonic()
    if signal_number == signal.SIGSTOP:
        pause(brokers[failing].pid)
    else:
        brokers[failing].kill()
    # The failed broker has stopped working, so the first row from here on is captured by the other.
    row = inserts.count + 1
    while lease_holder(brokers[other]) != other:
        time.sleep(_LOOK_S)
    lease_s = time.monotonic() - begun_s
    reader.wait_for_row(brokers[other], row)
    change_s = time.monotonic() - begun_s
    if signal_number == signal.SIGSTOP:
        resume(brokers[failing].pid)
    else:
        brokers[failing].start()
    return lease_s, change_s


@contextmanager
def _running() -> Generator[tuple[_Brokers, Inserts]]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="stele-bench-", dir="/tmp")))
        home.chmod(0o755)
        settings: dict[str, Any] = {"wal_level": "logical", "max_connections": "200"}
        server = stack.enter_context(PostgresServer(find_bin(), parent=home, **settings))
        create_table(server)
        brokers = _Brokers(server, home)
        brokers.start()
        stack.callback(brokers.stop)
        inserts = Inserts(server, interval_s=1 / _RATE)
        inserts.start()
        stack.callback(inserts.end)
        yield brokers, inserts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each signal")
    rounds: int = parser.parse_args().rounds
    try:
        with _running() as (brokers, inserts):
            reader = _Reader()
            for signal_number in (signal.SIGKILL, signal.SIGSTOP):
                times = [_round(brokers, inserts, reader, signal_number) for _ in range(rounds)]
                for what, seconds in zip(
                    ("lease taken", "first change"), zip(*times, strict=True), strict=True
                ):
                    ordered = sorted(seconds)
                    shown = ", ".join(f"{second:.1f}" for second in ordered)
                    median = ordered[len(ordered) // 2]
                    name = signal.Signals(signal_number).name
                    print(f"{name:8} {what:13} median {median:5.1f} s  ({shown})", flush=True)
    except (PostgresMissing, BrokerStartError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
