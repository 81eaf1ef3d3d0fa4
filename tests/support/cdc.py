"""``stele cdc`` as a process, and what its topics say, replayed as a consumer would."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from stele import Client
from stele.cdc.records.events import Position
from stele.errors import SteleClientError, UnknownTopicError
from stele.records import Record

from load.pausing import pause, resume
from tests.support.waiting import Pauses
from tests.support.warm_processes import WarmProcess

TIMEOUT_S = 120
EXIT_CODE_OF_A_GAP = 3


class Database(Protocol):
    """A server, or whichever of several is the primary."""

    @property
    def dsn(self) -> str: ...

    def run(self, query: str, given: object = None) -> list[tuple[Any, ...]]: ...

    def connect(self) -> Any: ...


class CdcProcess:
    """One ``stele cdc`` process; after a restart it continues where it was."""

    def __init__(self, pg: Database, broker: str, log: Path, *arguments: str) -> None:
        self._arguments = ["cdc", "--broker", broker, *arguments]
        self._environment = {**os.environ, "STELE_CDC_DSN": pg.dsn}
        self._pg = pg
        self._log = log
        self._process: WarmProcess | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = WarmProcess(self._arguments, env=self._environment, stderr=log)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def check(self) -> None:
        """Fail if the process has ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, self.said

    def await_streaming(self) -> None:
        """Returns when the copies are made, and what comes now comes from the stream."""
        give_up_s = time.monotonic() + TIMEOUT_S
        pauses = Pauses()
        while not self._pg.run(
            "SELECT 1 FROM pg_stat_replication WHERE application_name = 'stele cdc' AND state IN ('catchup', 'streaming')"
        ):
            self.check()
            assert time.monotonic() < give_up_s, self.said
            pauses.pause()

    def await_confirmed(self) -> None:
        """Returns when everything that PostgreSQL has written by now is stored and confirmed.

        Fails when nothing more is confirmed for long.
        """
        ((end,),) = self._pg.run("SELECT pg_current_wal_lsn()::text")
        confirmed: list[tuple[Any, ...]] = []
        give_up_s = time.monotonic() + TIMEOUT_S
        pauses = Pauses()
        while not self._pg.run(
            "SELECT 1 FROM pg_replication_slots WHERE active AND confirmed_flush_lsn >= %s", (end,)
        ):
            self.check()
            before, confirmed = (
                confirmed,
                self._pg.run("SELECT slot_name, confirmed_flush_lsn::text FROM pg_replication_slots"),
            )
            if confirmed != before:
                give_up_s = time.monotonic() + TIMEOUT_S
            assert time.monotonic() < give_up_s, self.said
            pauses.pause()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(TIMEOUT_S)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def freeze(self) -> None:
        """Returns when it stores no more changes."""
        assert self._process is not None
        pause(self._process.pid)
        self.check()

    def thaw(self) -> None:
        assert self._process is not None
        resume(self._process.pid)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)


@contextmanager
def running_cdc(pg: Database, broker: str, log: Path, *arguments: str) -> Generator[CdcProcess]:
    process = CdcProcess(pg, broker, log, *arguments)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def gaps_of(broker: str) -> list[dict[str, Any]]:
    """Return the gaps that are recorded in the topic of schema changes."""
    with Client(broker) as client:
        records = client.fetch("pg.schema-changes", 0, 0, max_records=1000).records
    documents = [json.loads(record.value or b"") for record in records]
    return [document for document in documents if document["kind"] == "gap"]


def gap_in(said: str) -> tuple[str, str]:
    """Return the LSNs between which changes may be missing, by the last message that says so."""
    return re.findall(r"changes may be missing from (\S+) to (\S+) \(", said)[-1]


class Replay:
    """Reads the topic of a table on and on, and keeps the table that comes out of it.

    Holds what must be true of every record on the way: positions of the stream rise in each
    partition, so nothing is there twice or out of order; a row that is read or created was not there.

    ``is_resumed``: a copy may go on beside the stream. Then changes of rows come before the rows were read, and a row
    that is read is the one that the changes before it have made, if there were any. None is read twice.
    """

    def __init__(self, broker: str, topic: str, *, is_resumed: bool = False) -> None:
        self._is_resumed = is_resumed
        self._was_read: set[bytes] = set()
        self._broker = broker
        self.topic = topic
        self.rows: dict[bytes, dict[str, Any]] = {}
        self.records: list[Record[bytes]] = []
        self._offsets: dict[int, int] = {}
        self._positions: dict[int, Position] = {}
        self._truncated: dict[int, int] = {}

    def read_until(self, is_done: Callable[[], bool], *, check: Callable[[], None] = lambda: None) -> None:
        """Returns when ``is_done``. Fails when no more records come."""
        give_up_s = time.monotonic() + TIMEOUT_S
        with Client(self._broker, timeout_s=10) as client:
            while True:
                try:
                    came = self._read(client)
                except SteleClientError as error:
                    # The broker was killed, or the first record has not come yet.
                    if not (error.retriable or isinstance(error, UnknownTopicError)):
                        raise
                    came = False
                    time.sleep(0.05)
                if is_done():
                    return
                check()
                if came:
                    give_up_s = time.monotonic() + TIMEOUT_S
                assert time.monotonic() < give_up_s, (self.topic, len(self.records), len(self.rows))

    def forget_reads(self) -> None:
        """Allow that all rows are read once more."""
        self._was_read.clear()

    def read_all(self) -> None:
        """Read what is there now."""
        with Client(self._broker) as client:
            while self._read(client):
                pass

    def _read(self, client: Client) -> bool:
        count = client.partition_count(self.topic)
        came = False
        for partition in range(count):
            page = client.fetch(
                self.topic, partition, self._offsets.get(partition, 0), wait_ms=20, max_records=50_000
            )
            for record in page.records:
                self._take(record, count)
            came = came or bool(page.records)
            self._offsets[partition] = page.next_offset
        return came

    def _take(self, record: Record[bytes], partitions: int) -> None:
        self.records.append(record)
        headers = dict(record.headers)
        operation = (headers["operation"] or b"").decode()
        position = Position.parse((headers["event_id"] or b"").decode())
        event = json.loads(record.value) if record.value is not None else None
        if event is not None:
            assert event["op"] == operation
        if operation != "r" and event is not None and event["source"]["txid"] is not None:
            assert position > self._positions.get(record.partition, Position(0, 0, -1)), record
            self._positions[record.partition] = position
        key = record.key
        if event is None:
            assert key not in self.rows
            return
        match operation:
            case "t":
                # It stands in every partition; the rows of this one are gone.
                self.rows = {k: row for k, row in self.rows.items() if row["#"] != record.partition}
                self._was_read = {k for k in self._was_read if k in self.rows}
            case "d":
                assert key is not None
                assert self._is_resumed or key in self.rows
                self.rows.pop(key, None)
            case "u":
                assert key is not None
                assert self._is_resumed or key in self.rows
                unchanged = {name: self.rows[key][name] for name in event.get("unchanged", [])}
                self.rows[key] = {**event["after"], **unchanged, "#": record.partition}
            case "r" if self._is_resumed:
                assert key is not None
                assert key not in self._was_read, record
                self._was_read.add(key)
                row = {**event["after"], "#": record.partition}
                assert self.rows.setdefault(key, row) == row, record
            case _:
                assert key is not None
                assert key not in self.rows, record
                self.rows[key] = {**event["after"], "#": record.partition}

    def table(self, key: str = "id") -> dict[Any, dict[str, Any]]:
        """The rows, by their key."""
        return {
            row[key]: {name: value for name, value in row.items() if name != "#"}
            for row in self.rows.values()
        }
