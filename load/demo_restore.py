"""The drill of a lost disk: a broker with a replica dies under load, its directory is deleted and restored.

A broker replicates to a directory that stands for a bucket. Producers write and a consumer commits, until the broker
is killed with SIGKILL and its data directory is deleted. ``stele restore`` makes it again, and the drill compares: what
was acknowledged before the newest cut must be there, each record once and in order, and no committed offset may be
past the end. Then the broker goes on with the same replica.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from stele import Client, Consumer, NewRecord
from stele.broker_process import BrokerProcess
from stele.errors import SteleClientError

TOPIC, GROUP = "drill", "readers"
PARTITIONS = 3
_BATCH = 500
_TIMEOUT_S = 10
_READ_TIMEOUT_S = 60
# Written after the restore.
LAST = b"after the restore"


@dataclass(slots=True)
class Written:
    """What the broker has acknowledged: for each partition the times of the acknowledgements, in ms."""

    acked_ms: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])

    @property
    def count(self) -> int:
        return sum(map(len, self.acked_ms))


def write_until_it_dies(broker: BrokerProcess, written: Written) -> None:
    """Write numbered records to each partition until the broker is gone."""
    with suppress(SteleClientError), Client(broker.binary_url, timeout_s=_TIMEOUT_S) as client:
        while True:
            for partition, acked_ms in enumerate(written.acked_ms):
                first = len(acked_ms)
                client.produce_many(
                    TOPIC,
                    [NewRecord(b"%d" % (first + number), partition=partition) for number in range(_BATCH)],
                )
                acked_ms += [_now_ms()] * _BATCH


def read_all_the_time(broker: BrokerProcess, has_read: threading.Event) -> None:
    """Read in a group, and commit; a group waits while the broker is down. ``has_read`` is set by the last record."""
    with Client(broker.http_url, timeout_s=_TIMEOUT_S) as client, client.group(GROUP, TOPIC) as group:
        while not has_read.is_set():
            with suppress(SteleClientError):
                batch = group.poll()
                if batch is not None:
                    if any(record.value == LAST for record in batch.records):
                        has_read.set()
                    batch.ack()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def command(*arguments: str) -> dict[str, Any]:
    """Run a command of this installation, and return what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "stele.cli", *arguments, "--format", "json"], capture_output=True, check=False
    )
    if done.returncode:
        raise click.ClickException(done.stderr.decode())
    return json.loads(done.stdout)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back: records of each partition, and what is wrong."""

    restored: int
    lost: int
    lost_ms: int
    problems: list[str]


def compare(broker: BrokerProcess, written: Written, cut_ms: int) -> Outcome:
    """Compare the restored broker with what was acknowledged."""
    problems: list[str] = []
    found = [list[bytes | None]() for _ in range(PARTITIONS)]
    with (
        Client(broker.binary_url) as client,
        Consumer(client, TOPIC, start="earliest", follow=False) as consumer,
    ):
        for record in consumer:
            found[record.partition].append(record.value)
    lost, newest_ms = 0, cut_ms
    for partition, values in enumerate(found):
        acked = written.acked_ms[partition]
        if values != [b"%d" % number for number in range(len(values))]:
            problems.append(f"the records of partition {partition} are not those that were written, in order")
        lacking = [acked_ms for acked_ms in acked[len(values) :] if acked_ms < cut_ms]
        if lacking:
            problems.append(
                f"partition {partition} lacks {len(lacking)} records that were acknowledged before the cut"
            )
        lost += max(0, len(acked) - len(values))
        newest_ms = max([newest_ms, *acked[len(values) :]])
    for entry in command("groups", "describe", GROUP, "--url", broker.http_url)["partitions"]:
        end = len(found[int(entry["partition"])])
        if (entry["committed"] or 0) > end:
            problems.append(f"the committed offset {entry['committed']} is past the end, {end}")
    return Outcome(sum(map(len, found)), lost, newest_ms - cut_ms, problems)


def _shown(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%H:%M:%S.%f}"[:-3]


@click.command(help=(__doc__ or "").partition("\n\n")[2].partition("\n\n")[0])
@click.option("--seconds", default=5.0, show_default=True, help="How long the broker lives under load.")
def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="stele-drill-") as folder:
        problems = drill(Path(folder), seconds)
    for problem in problems:
        click.echo(f"FAILED: {problem}", err=True)
    if problems:
        raise SystemExit(1)
    click.echo(
        "all that was acknowledged before the cut is there, and the broker goes on; nothing is left behind"
    )


def drill(folder: Path, seconds: float) -> list[str]:
    """Lose a directory, and restore it; return what is wrong."""
    bucket = f"file://{folder / 'bucket'}"
    broker = BrokerProcess(folder / "data", environment={"STELE_REPLICATE_TO": bucket})
    broker.start()
    try:
        click.echo(f"a broker replicates its data directory to {bucket}")
        with Client(broker.http_url) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
        written, has_read = Written(), threading.Event()
        # A daemon: it waits for the broker, also if that does not come back.
        threading.Thread(target=read_all_the_time, args=(broker, has_read), daemon=True).start()
        writer = threading.Thread(target=write_until_it_dies, args=(broker, written))
        writer.start()
        # It does not end before the broker does.
        writer.join(seconds)
        broker.kill()
        writer.join()
        shutil.rmtree(broker.data_dir)
        click.echo(
            f"{written.count:,} records were acknowledged; then it was killed, and its directory deleted"
        )
        restored = command("restore", bucket, "--data-dir", str(broker.data_dir))
        click.echo(
            f"restored in {restored['seconds']:.1f} s as of {_shown(restored['at'])}: {restored['bytes']:,} bytes, "
            f"{restored['partitions']} partitions"
        )
        broker.start()
        outcome = compare(broker, written, restored["at"])
        click.echo(
            f"{outcome.restored:,} records came back; {outcome.lost:,} of the last {outcome.lost_ms} ms are lost: they "
            "were newer than the cut"
        )
        return [*outcome.problems, *_goes_on(broker, bucket, has_read)]
    finally:
        broker.kill()


def _goes_on(broker: BrokerProcess, bucket: str, has_read: threading.Event) -> list[str]:
    """Write to the restored broker, for the consumer that was there all the time; return what is wrong."""
    with Client(broker.http_url) as client:
        client.produce(TOPIC, LAST, partition=0)
    if not has_read.wait(_READ_TIMEOUT_S):
        return ["the consumer does not go on"]
    # Its last cut has everything.
    broker.stop()
    status = command("replica", "status", bucket)
    generations = [one["generation"] for one in status["generations"]]
    if generations != [2, 1]:
        return [f"the replica has the generations {generations}, not 2 and 1"]
    return []


if __name__ == "__main__":
    main()
