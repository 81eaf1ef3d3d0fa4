"""Measure the time from SIGTERM to the end, with thousands of partitions."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stele import Client, NewRecord

from .broker_process import running_broker
from .measure import in_turn, report

TOPICS = 10
PARTITIONS = 200
ROUNDS = 3


def _seconds_to_stop(data_dir: Path, work: Callable[[Client], None]) -> float:
    """Of a broker on ``data_dir`` for which ``work`` was done."""
    with running_broker("--log-level", "warning", data_dir=data_dir) as broker:
        with Client(broker.binary_url) as client:
            work(client)
        begun = time.perf_counter()
        broker.stop()
        return time.perf_counter() - begun


def _create(client: Client) -> None:
    for number in range(TOPICS):
        client.create_topic(f"many-{number}", partitions=PARTITIONS)


def _write(client: Client) -> None:
    """A record into each partition."""
    for number in range(TOPICS):
        client.produce_many(f"many-{number}", [NewRecord(b"x", partition=p) for p in range(PARTITIONS)])


def _nothing(_client: Client) -> None:
    pass


def _seconds_to_replace_files(directory: Path) -> float:
    """Replace a small file in each of as many directories.

    Each is written, synced and renamed, and its directory is synced.
    """
    begun = time.perf_counter()
    for number in range(TOPICS * PARTITIONS):
        place = directory / str(number)
        place.mkdir(exist_ok=True)
        temporary = place / "file.tmp"
        with temporary.open("wb") as file:
            file.write(b"x" * 11)
            file.flush()
            os.fdatasync(file.fileno())
        temporary.rename(place / "file")
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(fd)
        os.close(fd)
    return time.perf_counter() - begun


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        many, one = Path(temporary) / "many", Path(temporary) / "one"
        with (
            running_broker("--log-level", "warning", data_dir=many) as broker,
            Client(broker.binary_url) as client,
        ):
            _create(client)
        report(
            f"stop with {TOPICS * PARTITIONS:,} partitions to which nothing was written",
            in_turn(
                lambda: _seconds_to_stop(many, _nothing),
                lambda: _seconds_to_stop(one, _nothing),
                rounds=ROUNDS,
            ),
            unit="s",
            yardstick="without any",
            goal=3,
            at_most=True,
        )
        report(
            f"stop with {TOPICS * PARTITIONS:,} partitions, all of them just written to",
            in_turn(
                lambda: _seconds_to_stop(many, _write),
                lambda: _seconds_to_replace_files(Path(temporary)),
                rounds=ROUNDS,
            ),
            unit="s",
            yardstick="one file in each of as many directories, replaced and synced in one thread",
            goal=2,
            at_most=True,
        )


if __name__ == "__main__":
    main()
