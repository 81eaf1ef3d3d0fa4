"""All parts of a cluster with links between each pair, its clients, and the checks at the end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from stele import Client, OffsetOutOfRangeError, SteleClientError
from stele.broker_process import BrokerStartError
from stele.testing import BrokerProcess
from stele.wire import record_batch as rb

from app.storage.shared.store.object_keys import MERGED, WRITTEN
from app.storage.shared.store.urls import open_object_store
from load.pausing import pause, resume
from tests.support import kafka_peer
from tests.support.kafka_peer import KafkaPeer
from tests.support.s3_servers import seaweedfs

from . import clients, hooks, pairs
from .database import Database
from .epoch_reader import epoch_reader
from .ledger import Ledger, Place
from .links import Link, LinkGroup, LinkLoop
from .reports import adopted_in, reports_in
from .store_proxy import StoreMood, StoreProxy

Variant = Literal["s3", "inline"]

BROKERS = (1, 2, 3)
TOPICS = ("kafka", "http", "binary", "plain", "short")
IDEMPOTENT_TOPICS = ("kafka", "http", "binary")
GROUPS = ("kafka-readers", "http-readers", "binary-readers")
# What producers count as acknowledged, by topic.
ACKNOWLEDGED = (*TOPICS, pairs.TOPIC)
# What each producer and group counts as it goes on. The others ask a random broker each time, which may be paused.
PROGRESS = ("kafka", "http", "binary", "short", pairs.TOPIC, *(f"read by {group}" for group in GROUPS))
# What a client, the last reads and the sweep may take once all faults are over, on a busy machine.
PATIENCE_S = 180.0
# How long a broker may take to end, or to start, while something that it needs may be cut off.
END_S = 8.0
_START_S = 30.0
# Of the batches around a transaction that is there in part.
_TORN_SHOWN = 6
_BATCHES_SHOWN = 40
# A standby lags by less than the bytes of a dead object are kept.
_DEAD_MS = 30_000


class Broker:
    """A broker behind links, which may be dead, paused or alive."""

    def __init__(self, number: int, process: BrokerProcess) -> None:
        self.number = number
        self.process = process
        self.is_paused = False
        # SIGTERM was sent, and it may still be at work.
        self.is_stopping = False
        self.starts = 0

    def signal(self, which: signal.Signals) -> None:
        os.kill(self.process.pid, which)

    def kill(self) -> None:
        # SIGKILL ends a process that is stopped, too.
        self.is_paused = self.is_stopping = False
        self.process.kill()

    def stop(self) -> None:
        """Send SIGTERM; ``await_end`` comes before the next start."""
        self.is_stopping = True
        self.signal(signal.SIGTERM)

    def await_end(self, timeout_s: float) -> bool:
        """Wait until a broker that is stopping has ended, and kill it if it does not; return whether it did."""
        if not self.is_stopping or not self.process.is_running:
            self.is_stopping = False
            return True
        self.is_stopping = False
        try:
            # A second SIGTERM changes nothing.
            self.process.stop(timeout_s=timeout_s)
        except TimeoutError:
            return False
        return True

    def pause(self) -> None:
        if self.process.is_running:
            self.is_paused = True
            pause(self.process.pid)

    @property
    def log(self) -> Path:
        """The file with everything that it has logged, over all starts."""
        return self.process.data_dir.parent / f"{self.process.data_dir.name}.stderr"

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            resume(self.process.pid)


class World:
    """The parts of a run, within a ``with``."""

    def __init__(self, path: Path, variant: Variant, random: Random, *, fails_over: bool = False) -> None:
        self.variant = variant
        self._fails_over = fails_over
        self.ledger = Ledger()
        self._path = path
        self._random = random
        self._stack = ExitStack()
        self._work: list[clients.Work] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        self.store_url = stack.enter_context(seaweedfs()) if self.variant == "s3" else "inline"
        self.loop = loop = stack.enter_context(LinkLoop())
        self.postgres_links = {n: Link(loop, f"{n}-postgres") for n in BROKERS}
        self.postgres = stack.enter_context(
            Database(loop, list(self.postgres_links.values()), has_standby=self._fails_over)
        )
        self.stores: dict[int, StoreProxy] = {}
        if self.variant == "s3":
            endpoint = urlsplit(dict(parse_qsl(urlsplit(self.store_url).query))["endpoint"])
            assert endpoint.hostname is not None
            assert endpoint.port is not None
            for number in BROKERS:
                self.stores[number] = StoreProxy(
                    loop, f"{number}-store", (endpoint.hostname, endpoint.port), Random(self._random.random())
                )
        self.http_links = {n: Link(loop, f"clients-{n}-http") for n in BROKERS}
        self.binary_links = {n: Link(loop, f"clients-{n}-binary") for n in BROKERS}
        self.kafka_links = {n: Link(loop, f"clients-{n}-kafka") for n in BROKERS}
        self.peer_links = {(a, b): Link(loop, f"{a}-{b}") for a in BROKERS for b in BROKERS if a != b}
        self.pairs = [
            *(LinkGroup(f"broker {n} and PostgreSQL", self.postgres_links[n]) for n in BROKERS),
            *(LinkGroup(f"broker {n} and the store", self.stores[n]) for n in self.stores),
            *(
                LinkGroup(f"brokers {a} and {b}", self.peer_links[a, b], self.peer_links[b, a])
                for a in BROKERS
                for b in BROKERS
                if a < b
            ),
            *(
                LinkGroup(
                    f"clients and broker {n}", self.http_links[n], self.binary_links[n], self.kafka_links[n]
                )
                for n in BROKERS
            ),
        ]
        self.brokers = {n: Broker(n, self._broker(n)) for n in BROKERS}
        stack.callback(self._end_brokers)
        for broker in self.brokers.values():
            broker.process.start()
            self._connect(broker)
        self.http_urls = [f"http://127.0.0.1:{link.port}" for link in self.http_links.values()]
        self.binary_urls = [f"stele://127.0.0.1:{link.port}" for link in self.binary_links.values()]
        self.bootstrap = ",".join(f"127.0.0.1:{link.port}" for link in self.kafka_links.values())
        with Client(self.brokers[1].process.binary_url) as client:
            for topic in TOPICS:
                configs = {"retention.ms": "-1", "segment.bytes": "65536"}
                if topic == "short":
                    configs["retention.bytes"] = "150000"
                client.create_topic(topic, partitions=clients.PARTITIONS, configs=configs)
            client.create_topic(pairs.TOPIC, partitions=len(pairs.PLACES), configs={"retention.ms": "-1"})

    def _broker(self, number: int) -> BrokerProcess:
        store = self.store_url
        if number in self.stores:
            address = urlsplit(store)
            store = (
                f"s3://{address.netloc}{address.path}?endpoint=http://127.0.0.1:{self.stores[number].port}"
            )
        peers = {other: self.peer_links[number, other].port for other in BROKERS if other != number}
        return BrokerProcess(
            self._path / f"broker-{number}",
            environment={
                "STELE_STORAGE": "shared",
                "STELE_POSTGRES_URL": (
                    f"postgresql://postgres@127.0.0.1:{self.postgres_links[number].port}/postgres"
                ),
                "STELE_OBJECT_STORE": store,
                "STELE_SHARED_LINGER_MS": "30" if self.variant == "s3" else "5",
                "STELE_BROKER_ID": str(number),
                "STELE_ADVERTISED_KAFKA_PORT": str(self.kafka_links[number].port),
                "STELE_LOG_RETENTION_CHECK_INTERVAL_MS": "2000",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                hooks.HOOK: hooks.INSTALL,
                hooks.PEERS: json.dumps(peers),
                hooks.DEAD: str(_DEAD_MS if self._fails_over else hooks.DEAD_MS),
            },
            start_timeout_s=PATIENCE_S,
        )

    def _connect(self, broker: Broker) -> None:
        process, number = broker.process, broker.number
        broker.starts += 1
        self.http_links[number].target = (process.host, process.http_port)
        self.binary_links[number].target = (process.host, process.binary_port)
        self.kafka_links[number].target = (process.host, process.kafka_port)
        for (_, to), link in self.peer_links.items():
            if to == number:
                link.target = (process.host, process.http_port)

    def _end_brokers(self) -> None:
        for broker in self.brokers.values():
            broker.resume()
        for broker in self.brokers.values():
            if broker.process.is_running:
                broker.process.kill()

    # ── the run ──

    def start_clients(self, seed: int) -> None:
        ledger = self.ledger
        http = "http://" + ",".join(url.partition("//")[2] for url in self.http_urls)
        binary = "stele://" + ",".join(url.partition("//")[2] for url in self.binary_urls)
        both = {"http": self.http_urls, "binary": self.binary_urls}
        works: dict[str, Callable[[clients.Work], None]] = {
            "kafka producer": clients.kafka_producer(self.bootstrap, seed),
            "http producer": clients.stele_producer(http, "http", "h", seed + 1),
            "binary producer": clients.stele_producer(binary, "binary", "b", seed + 2),
            "short producer": clients.stele_producer(binary, "short", "s", seed + 3),
            "plain producer": clients.plain_http_producer(self.http_urls, "plain", seed + 4),
            "kafka member 1": clients.kafka_member(self.bootstrap, GROUPS[0], {"client.id": "one"}),
            "kafka member 2": clients.kafka_member(self.bootstrap, GROUPS[0], {"client.id": "two"}),
            "http reader": clients.leased_reader(http, GROUPS[1], "http"),
            "binary reader": clients.leased_reader(binary, GROUPS[2], "binary"),
            "tail of plain": clients.tail(both["http"], "plain", seed + 5),
            "tail of kafka": clients.tail(both["binary"], "kafka", seed + 6),
            "pair producer": pairs.pair_producer(self.bootstrap, seed + 8),
            "epoch reader": epoch_reader(
                [link.port for link in self.kafka_links.values()], "binary", seed + 9
            ),
            "watcher": clients.offset_watcher(self.http_urls, GROUPS, seed + 7),
        }
        self._work = [clients.Work(name, ledger, run) for name, run in works.items()]

    def heal(self) -> None:
        """End every fault: everything runs and is connected."""
        for pair in self.pairs:
            pair.mend()
        for store in self.stores.values():
            store.mood = store.outage = StoreMood()
        for broker in self.brokers.values():
            broker.resume()
        for broker in self.brokers.values():
            self.start(broker)

    def start(self, broker: Broker) -> None:
        """Start a broker that is dead, or stopping; everything is reachable."""
        if not broker.await_end(PATIENCE_S):
            self.ledger.fail(f"broker {broker.number} did not end within {PATIENCE_S} s of SIGTERM")
        if broker.process.is_running:
            return
        try:
            broker.process.start()
        except BrokerStartError as error:
            self.ledger.fail(f"broker {broker.number} did not start: {str(error)[-2000:]}")
        else:
            self._connect(broker)

    def start_if_reachable(self, broker: Broker) -> None:
        """Start a broker that is dead or stopping; leave it dead if it cannot start because of another fault.

        What cannot be reached may hold up its end and its start.
        """
        broker.await_end(END_S)
        if not broker.process.is_running:
            broker.process._start_timeout_s = _START_S
            with suppress(BrokerStartError):
                broker.process.start()
                self._connect(broker)
            broker.process._start_timeout_s = PATIENCE_S

    def end_clients(self) -> None:
        """Let the producers finish, then the readers."""
        producers = [work for work in self._work if "producer" in work.name]
        for work in producers:
            work.is_over.set()
        for work in producers:
            work.end(PATIENCE_S)
        for work in self._work:
            work.is_over.set()
        for work in self._work:
            work.end(PATIENCE_S)

    def await_adoption(self, epoch: int, before: dict[int, tuple[int, int]]) -> None:
        """Wait until each broker that lives has taken over the history ``epoch``.

        ``before`` has the number of its starts and the size of its log before the failover.
        """
        give_up_s = time.monotonic() + PATIENCE_S
        for number, broker in self.brokers.items():
            starts, size = before[number]
            # One that has started since knows no other history.
            while (
                broker.process.is_running and broker.starts == starts and adopted_in(broker.log, size) < epoch
            ):
                if time.monotonic() > give_up_s:
                    self.ledger.fail(
                        f"broker {number} has not taken over history {epoch} within {PATIENCE_S:g} s"
                    )
                    return
                time.sleep(0.05)

    def logs_now(self) -> dict[int, tuple[int, int]]:
        """Return, for ``await_adoption``, the number of starts of each broker and the size of its log."""
        return {number: (broker.starts, broker.log.stat().st_size) for number, broker in self.brokers.items()}

    # ── checks ──

    def check(self) -> None:
        """Read everything at every broker, and compare metadata and store."""
        ledger = self.ledger
        for broker in self.brokers.values():
            ledger.reports += reports_in(broker.log)
        ledger.check_reports()
        for number, broker in self.brokers.items():
            for topic in TOPICS:
                for partition in range(clients.PARTITIONS):
                    place, at = (topic, partition), f"broker {number}"
                    read = _read_all(broker.process.binary_url, place)
                    if isinstance(read, str):
                        ledger.fail(f"{at} cannot be read: {read}")
                        continue
                    start, records = read
                    ledger.check_log(place, start, records, at)
                    ledger.check_reader(place, records, at)
                    if topic in IDEMPOTENT_TOPICS:
                        self._check_once(broker, place, records)
        self._check_pairs()
        self._check_metadata()
        if self._fails_over:
            # What only the lost part named is garbage once the broker that has stored it has ended.
            for broker in self.brokers.values():
                broker.stop()
                self.start(broker)
        self._check_sweep()

    def _check_pairs(self) -> None:
        """Check that each transaction is there as a whole, once, or not at all."""
        committed = [pairs.committed_in(self.bootstrap, place) for place in pairs.PLACES]
        for place, records in zip(pairs.PLACES, committed, strict=True):
            self.ledger.check_log(place, 0, records, "the cluster", is_dense=False)
            self.ledger.check_order(place, records, "the cluster")
            if twice := self.ledger.repeated(records):
                self.ledger.fail(f"{place} has {len(twice)} records of transactions twice")
        first, second = ({value[:20] for value in records.values()} for records in committed)
        if torn := first ^ second:
            self.ledger.fail(f"{len(torn)} transactions are there in part: {sorted(torn)[:3]}")
            broker = next(iter(self.brokers.values())).process
            for place, records in zip(pairs.PLACES, committed, strict=True):
                known = {**self.ledger.at[place], **records}
                near = {offset for offset, value in known.items() if value[:20] in torn}
                for header in _batches(broker, place):
                    if any(abs(header.base_offset - offset) <= _TORN_SHOWN for offset in near):
                        value = known.get(header.base_offset, b"")[:12]
                        is_shown = header.base_offset in records
                        self.ledger.fail(f"  {place}: {_header_text(header)} {value!r} {is_shown=}")

    def _check_once(self, broker: Broker, place: Place, records: dict[int, bytes]) -> None:
        """Check that each batch of a producer is there once, in the order of its sequences.

        So a broker never stores a batch twice. A client can: librdkafka has been seen to send records again under
        other sequences, after it had lost all brokers. That is counted, and a mistake of our own client library.
        """
        at = f"broker {broker.number}"
        batches = _batches(broker.process, place)
        expected: dict[tuple[int, int], int] = {}
        for header in batches:
            producer = (header.producer_id, header.producer_epoch)
            sequence = expected.get(producer, 0)
            if producer not in expected and self.ledger.may_have_forgotten(place, header.base_offset):
                # Of an unknown producer, any first batch is accepted.
                sequence = header.base_sequence
            if header.has_producer_id and header.base_sequence != sequence:
                self.ledger.fail(
                    f"{at}: producer {producer} in {place} continues at offset {header.base_offset} with"
                    f" sequence {header.base_sequence}, not {sequence}"
                )
            expected[producer] = header.base_sequence + header.last_offset_delta + 1
        twice = self.ledger.repeated(records)
        if not twice:
            # Each time anew for a producer that replaces one that cannot go on: a request of the first may be late.
            for producer_id in {header.producer_id for header in batches}:
                own = {
                    offset: records[offset]
                    for header in batches
                    if header.producer_id == producer_id
                    for offset in range(header.base_offset, header.next_offset)
                }
                self.ledger.check_order(place, own, f"{at}, producer {producer_id}")
        elif place[0] == "kafka":
            shown = "; ".join(_described(batches, records, twice))
            self.ledger.error("kafka producer (sent again by librdkafka)", f"{place} {len(twice)}")
            print(f"{at}: librdkafka sent {len(twice)} records of {place} again: {shown}")
        else:
            self.ledger.fail(f"{at}: {place} has {'; '.join(_described(batches, records, twice))}")

    def _check_metadata(self) -> None:
        fail = self.ledger.fail
        for part, start, end, base, last, before in self.postgres.run(
            "SELECT l.log_id, l.log_start, l.next_offset, b.base_offset, b.last_offset,"
            " lag(b.last_offset) OVER (PARTITION BY l.log_id ORDER BY b.last_offset)"
            " FROM stele.logs l JOIN stele.batches b USING (log_id)"
        ):
            if before is None:
                if base > start:
                    fail(f"log {part} begins at {start}, its runs at {base}")
            elif base != before + 1:
                fail(f"the runs of log {part} leave a gap or overlap: {before}, {base}")
            if last >= end:
                fail(f"log {part} ends at {end}, a run at {last}")
        for key, state in self.postgres.run(
            "SELECT o.key, o.state::text FROM stele.batches b LEFT JOIN stele.objects o USING (object_id)"
            " WHERE o.object_id IS NULL OR o.state <> 'c'"
        ):
            fail(f"a run names object {key}, which is {state}")

    def _check_sweep(self) -> None:
        """Every run has its object's bytes, and in the end nothing else has any."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            # Listed first: an object that is committed afterwards is missing from the list, not from the rows.
            stored = self._stored_keys()
            rows = self.postgres.run(
                "SELECT o.key, o.state::text, EXISTS (SELECT FROM stele.batches b WHERE b.object_id = o.object_id)"
                " FROM stele.objects o"
            )
            again = self._stored_keys()
            live = {key for key, state, has_run in rows if state == "c" and has_run}
            if missing := live - stored - again:
                still = {
                    row[0]
                    for row in self.postgres.run(
                        "SELECT DISTINCT o.key FROM stele.objects o JOIN stele.batches b USING (object_id)"
                    )
                }
                if missing & still - self._stored_keys():
                    self.ledger.fail(f"objects of runs have no bytes: {sorted(missing & still)[:3]}")
                    return
            orphans = (stored & again) - live
            if not orphans:
                return
            if time.monotonic() > give_up_s:
                known = {key: state for key, state, _ in rows}
                shown = [(key, known.get(key, "no row")) for key in sorted(orphans)]
                self.ledger.fail(f"{len(orphans)} objects without runs are left after the sweep: {shown[:5]}")
                return
            time.sleep(0.5)

    def _stored_keys(self) -> set[str]:
        inline = {row[0] for row in self.postgres.run("SELECT key FROM stele.inline_objects")}
        return inline | asyncio.run(_listed(self.store_url)) if self.stores else inline

    def progress(self) -> dict[str, int]:
        """Return how far each producer and group has come."""
        with self.ledger.lock:
            return {name: self.ledger.counts[name] for name in PROGRESS}

    def end_backends(self, share: float) -> int:
        """End the sessions of brokers, each with the probability ``share``; return how many."""
        rows = self.postgres.run(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name LIKE 'stele%%' AND random() < %s",
            (share,),
        )
        return rows[0][0]


async def _listed(url: str) -> set[str]:
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    store = open_object_store(url)
    keys: set[str] = set()
    for kind in (WRITTEN, MERGED):
        after = ""
        while page := await store.list_page(f"{kind}/", after=after):
            keys |= {stored.key for stored in page}
            after = page[-1].key
    return keys


def _read_all(url: str, place: Place) -> tuple[int, dict[int, bytes]] | str:
    """Return the log start and all records of a partition, or why they cannot be read."""
    topic, partition = place
    last: object = None
    start = 0
    for _ in range(10):
        try:
            with Client(url, timeout_s=60) as client:
                offset = start
                records: dict[int, bytes] = {}
                while fetched := client.fetch(topic, partition, offset).records:
                    records |= {record.offset: record.value or b"" for record in fetched}
                    offset = fetched[-1].offset + 1
                return start, records
        except OffsetOutOfRangeError as error:
            # Retention has moved the start.
            last, start = error, max(start, error.log_start_offset)
        except SteleClientError as error:
            last = error
            time.sleep(0.5)
    return f"{type(last).__name__}: {last}"


def _batches(broker: BrokerProcess, place: Place) -> list[rb.BatchHeader]:
    """Return the headers of all batches of a partition whose start was not deleted."""
    topic, partition = place
    headers: list[rb.BatchHeader] = []
    offset = 0
    with KafkaPeer(broker) as peer:
        while True:
            response = peer.call(kafka_peer.fetch(topic, offset, partition=partition), 11)
            found = list(rb.iter_headers(kafka_peer.only_partition(response).records or b""))
            if not found:
                return headers
            headers += found
            offset = found[-1].next_offset


def _described(headers: Sequence[rb.BatchHeader], records: dict[int, bytes], twice: set[bytes]) -> list[str]:
    """Describe the batches with records that are there more than once."""
    return [
        f"{_header_text(header)}, {records[header.base_offset][:12]!r}"
        for header in headers
        if any(records[offset] in twice for offset in range(header.base_offset, header.next_offset))
    ][:_BATCHES_SHOWN]


def _header_text(header: rb.BatchHeader) -> str:
    return (
        f"offsets {header.base_offset} to {header.next_offset - 1}: producer {header.producer_id}"
        f" epoch {header.producer_epoch} sequence {header.base_sequence}{' control' if header.is_control else ''}"
    )


def summary(ledger: Ledger) -> str:
    lines = [f"  {name}: {count}" for name, count in sorted(ledger.counts.items())]
    lines += [f"  error of {name}: {count}" for name, count in ledger.errors.most_common(25)]
    return "\n".join(lines)


def broken(ledger: Ledger) -> Sequence[Any]:
    return ledger.broken
