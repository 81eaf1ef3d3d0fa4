"""Measure a restore beside a bare copy of the same objects.

A broker writes segments and a replica of them, and stops. Each round restores the directory in a process of its own,
with the checks and syncs of ``stele restore``, from the call on. The yardstick copies the objects that the cut names to
files with obstore, as many at a time, and syncs each file: no more than ``rclone`` would do.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import obstore
from obstore.store import LocalStore, S3Store
from stele import Client, NewRecord
from stele.broker_process import BrokerProcess

from app.restoring import restore, summarize
from app.storage.replica.chain import CutChain
from app.storage.shared.store.urls import open_object_store

from .harness import Benchmark, in_turn
from .results import at_least
from .seaweedfs import running_seaweedfs

STORES = ("seaweedfs", "file")
_BUCKET = "stele-restore"
_TOPIC = "restored"
_RECORD_BYTES = 1024
_BATCH_RECORDS = 1000
_PARTITIONS = 8
_SEGMENT_BYTES = 32 << 20
_COPIES = 8
# For the last cut of a shutdown.
_TIMEOUT_S = 300.0


def make_replica(data_dir: Path, url: str, megabytes: int) -> None:
    """Write ``megabytes`` of records, with a replica of them at ``url``."""
    broker = BrokerProcess(
        data_dir, environment={"STELE_REPLICATE_TO": url, "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "3600000"}
    )
    broker.start()
    try:
        with Client(broker.binary_url) as client:
            client.create_topic(
                _TOPIC, partitions=_PARTITIONS, configs={"segment.bytes": str(_SEGMENT_BYTES)}
            )
            for number in range(megabytes * 1_000_000 // (_RECORD_BYTES * _BATCH_RECORDS)):
                client.produce_many(
                    _TOPIC,
                    [
                        NewRecord(os.urandom(_RECORD_BYTES), partition=number % _PARTITIONS)
                        for _ in range(_BATCH_RECORDS)
                    ],
                )
        _await_all(url, megabytes)
        broker.stop()
    finally:
        broker.kill()


def _await_all(url: str, megabytes: int) -> None:
    end_s = time.monotonic() + _TIMEOUT_S
    while asyncio.run(summarize(url)).size < megabytes * 990_000:
        if time.monotonic() > end_s:
            raise RuntimeError("the replica does not get what was written")
        time.sleep(0.5)


# ── what is measured, each in a process of its own ──


def restore_all(url: str, directory: Path) -> float:
    begun_s = time.perf_counter()
    restored = asyncio.run(restore(url, directory, advance=lambda done, total: None))
    return restored.size / 1e6 / (time.perf_counter() - begun_s)


def copy_all(url: str, directory: Path) -> float:
    keys = asyncio.run(_keys(url))
    directory.mkdir()
    begun_s = time.perf_counter()
    size = asyncio.run(_copy(url, keys, directory))
    return size / 1e6 / (time.perf_counter() - begun_s)


async def _keys(url: str) -> Sequence[str]:
    chain = CutChain(open_object_store(url))
    sequences = await chain.sequences()
    return list((await chain.state_at(sequences[-1])).used)


async def _copy(url: str, keys: Sequence[str], directory: Path) -> int:
    store = _bare_store(url)
    waiting = iter(enumerate(keys))
    size = 0

    async def work() -> None:
        nonlocal size
        for number, key in waiting:
            data = await (await obstore.get_async(store, key)).bytes_async()
            await asyncio.to_thread(_write, directory / str(number), data)
            size += len(data)

    await asyncio.gather(*(work() for _ in range(_COPIES)))
    return size


def _bare_store(url: str) -> LocalStore | S3Store:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return LocalStore(Path(parts.path))
    endpoint = dict(parse_qsl(parts.query))["endpoint"]
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/"),
        config={"endpoint": endpoint, "region": "us-east-1", "virtual_hosted_style_request": False},
        client_options={"allow_http": True},
    )


def _write(path: Path, data: obstore.Bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _in_process(measure: Callable[[str, Path], float], url: str, directory: Path) -> float:
    """Measure in a new process, which has used no memory yet."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply(measure, (url, directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def bucket(kind: str, folder: Path) -> Generator[str]:
    if kind == "file":
        yield f"file://{folder / 'bucket'}"
        return
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    with running_seaweedfs(_BUCKET) as url:
        yield url


def measure_store(bench: Benchmark, kind: str, rounds: int, megabytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="stele-") as temporary:
        folder = Path(temporary)
        with bucket(kind, folder) as url:
            bench.say(f"writing {megabytes} MB with a replica in {kind}")
            make_replica(folder / "data", url, megabytes)
            value = in_turn(
                lambda: _in_process(restore_all, url, folder / "restored"),
                lambda: _in_process(copy_all, url, folder / "copied"),
                rounds=rounds,
                unit="MB/s",
                goal=at_least(0.5),
            )
        bench.row(f"restore from a replica, {kind}", baseline="bare copy, obstore", value=value)


def main() -> None:
    bench = Benchmark(__file__, __doc__, rounds=5)
    bench.parser.add_argument("--store", choices=STORES, action="append", help="default: all")
    bench.add("--megabytes", type=int, default=500, quick=20, help="of records (default: 500)")
    with bench.run() as options:
        for kind in options.store or STORES:
            measure_store(bench, kind, options.rounds, options.megabytes)


if __name__ == "__main__":
    main()
