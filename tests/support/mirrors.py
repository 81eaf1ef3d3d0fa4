"""Mirrors as processes, and comparisons of copies with their sources."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stele.broker_process import BrokerProcess
from stele.mirror.definition import addresses
from stele.mirror.properties import parse
from stele.mirror.source import reads
from stele.mirror.source.cluster import Source
from stele.mirror.source.reads import FetchFrom
from stele.records import TopicPartition
from stele.wire.record_batch import iter_headers
from stele.wire.schema import NO_UUID

# Nothing a test waits for takes this long; it only ends a test that failed.
TIMEOUT_S = 120.0


class MirrorProcess:
    """A supervised mirror; ``await_status`` reads what it reports."""

    def __init__(
        self, definition: Mapping[str, Any], broker_url: str, environment: Mapping[str, str]
    ) -> None:
        self.statuses: list[dict[str, Any]] = []
        self._has_come = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stele.cli", "mirror", "run", "--supervised"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **environment,
                "STELE_MIRROR_DEFINITION": json.dumps(definition),
                "STELE_MIRROR_BROKER": broker_url,
            },
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._has_come:
                self.statuses.append(json.loads(line))
                self._has_come.notify_all()

    def await_status(self, holds: Callable[[dict[str, Any]], bool], what: str = "") -> dict[str, Any]:
        """Return the first status from now on for which ``holds``."""
        with self._has_come:
            seen = len(self.statuses)

            def found() -> dict[str, Any] | None:
                return next((status for status in self.statuses[seen:] if holds(status)), None)

            self._has_come.wait_for(lambda: found() or self.process.poll() is not None, TIMEOUT_S)
            status = found()
        assert status is not None, f"{what or 'it'} did not happen; the last status: {self.statuses[-1:]}"
        return status

    def await_level(self, ends: Mapping[TopicPartition, int] | None = None) -> dict[str, Any]:
        """Wait until all is level, and the copies have ended at ``ends`` or later."""

        def is_level(status: dict[str, Any]) -> bool:
            offsets = {
                TopicPartition(topic["topic"], one["partition"]): one["offset"]
                for topic in status.get("topics", ())
                for one in topic["partitions"]
            }
            return status["state"] == "level" and all(
                offsets.get(name, -1) >= end for name, end in (ends or {}).items()
            )

        return self.await_status(is_level, "the mirror is level")

    def stop(self) -> int:
        """Close its standard input, as the broker does when it ends; return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def run_mirror(
    broker: BrokerProcess,
    bootstrap: str,
    topics: str,
    *,
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> Generator[MirrorProcess]:
    """Run a mirror of ``bootstrap`` into ``broker``; ``more`` are fields of its definition.

    With ``to``, it copies from ``broker`` into that cluster, which ``bootstrap`` must be, too.
    """
    definition = {"name": "test", "from": bootstrap, "topics": topics, **more}
    address = broker.binary_url
    if more.get("to") == bootstrap:
        del definition["from"]
        address = broker.kafka_bootstrap
    process = MirrorProcess(definition, address, environment or {})
    try:
        yield process
        process.stop()
    finally:
        process.kill()


def mirror_pids(broker_pid: int) -> list[int]:
    """Return the processes of mirrors that a broker runs."""
    pids: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == broker_pid and b"mirror" in (path / "cmdline").read_bytes().split(b"\0"):
                pids.append(int(path.name))
    return pids


def partition_of(status: Mapping[str, Any], topic: str, partition: int = 0) -> dict[str, Any]:
    """Return what a status says of a partition; empty if it says nothing."""
    empty: dict[str, Any] = {}
    for one in status.get("topics", ()):
        if one["topic"] == topic:
            return next((found for found in one["partitions"] if found["partition"] == partition), empty)
    return empty


# ── comparisons ──


class RawLog:
    """A partition, read over Kafka's protocol: all batches as they are stored."""

    def __init__(self, start: int, end: int, batches: bytes) -> None:
        self.start = start
        self.end = end
        self.batches = batches

    def headers(self) -> list[Any]:
        return [
            (header.base_offset, header.last_offset, header.attributes)
            for header in iter_headers(self.batches)
        ]


def read_raw(
    bootstrap: str, topic: str, partition: int = 0, properties: Mapping[str, str] | None = None
) -> RawLog:
    """Read a partition from its start to its high watermark."""
    return asyncio.run(_read_raw(bootstrap, TopicPartition(topic, partition), properties or {}))


async def _read_raw(bootstrap: str, name: TopicPartition, properties: Mapping[str, str]) -> RawLog:
    source = Source(addresses(bootstrap), lambda: parse(properties, mirror="test"))
    try:
        (found,) = await reads.topics(source, [name.topic])
        leader = found.partitions[name.partition]
        starts = await reads.offsets(source, leader.broker, {name: -1}, reads.EARLIEST)
        ends = await reads.offsets(source, leader.broker, {name: -1}, reads.LATEST)
        position, end, parts = starts[name].offset, ends[name].offset, list[bytes]()
        while position < end:
            begin = {name: FetchFrom(NO_UUID, -1, position, -1)}
            fetched = await reads.fetch(source, leader.broker, begin, wait_ms=1000, bytes_max=8 << 20)
            records = bytes(fetched[name].records or b"")
            headers = [one for one in iter_headers(records) if one.next_offset > position]
            parts.extend(records[one.position : one.position + one.size] for one in headers)
            position = headers[-1].next_offset if headers else position
        return RawLog(starts[name].offset, ends[name].offset, b"".join(parts))
    finally:
        await source.close()


def assert_equal(source: str, copy: str, topic: str, partition: int = 0) -> RawLog:
    """Fail unless both have the same bytes from the source's log start on."""
    theirs, ours = read_raw(source, topic, partition), read_raw(copy, topic, partition)
    assert (ours.start, ours.end) == (theirs.start, theirs.end)
    assert ours.headers() == theirs.headers()
    assert ours.batches == theirs.batches
    return ours
