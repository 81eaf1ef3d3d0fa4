"""Producers and consumers of every protocol, each in a thread, with a ledger of what they were told.

A client may get errors: then nothing was promised. It goes on until it is told to stop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from stele import Client, SteleClientError
from stele import Producer as SteleProducer
from stele.wire.messages import Durability

from .ledger import Ledger, Place

PARTITIONS = 3
# A record may wait for the end of several faults in a row.
_DELIVERY_S = 600.0
# How long to wait for an answer of a broker, which may be paused or cut off.
ANSWER_S = 4.0
_ANSWER_MS = int(ANSWER_S * 1000)
_SESSION_MS = 6_000
_CLOSE_S = 60.0
# librdkafka hands over records before what it has logged.
_LOG_LATE_S = 5.0
_PAD = b"x" * 2_000
# librdkafka 2.16 begins a re-bootstrap (KIP-899) when all brokers are down. If an OffsetForLeaderEpoch is under way, its
# main thread never comes back from it, and every call of the consumer waits for ever.
RECOVERY = {"metadata.recovery.strategy": "none"}


class Work:
    """One client: ``run`` is called in a thread of its own, and looks at ``is_over``."""

    def __init__(self, name: str, ledger: Ledger, run: Callable[[Work], None]) -> None:
        self.name = name
        self.ledger = ledger
        self.is_over = threading.Event()
        self._run = run
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            self._run(self)
        except BaseException as error:  # noqa: BLE001 (for the thread that checks)
            self.ledger.fail(f"the client {self.name} ended: {type(error).__name__}: {error}")

    def end(self, timeout_s: float) -> None:
        self.is_over.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            frame = sys._current_frames().get(self._thread.ident or 0)
            stack = "".join(traceback.format_stack(frame)[-4:])
            self.ledger.fail(
                f"the client {self.name} gets no further after all faults are over; it stands in\n{stack}"
            )


def value_of(letter: str, number: int, ledger: Ledger, random: Random) -> bytes:
    """Return the value of a record, which says who sent it and after how many failovers."""
    return f"{letter}-{number}-{ledger.era}-".encode() + _PAD[: random.choice((0, 20, 200, 2_000))]


# ── producers ──


def kafka_producer(bootstrap: str, seed: int) -> Callable[[Work], None]:
    """librdkafka, idempotent, as its users have it."""

    def run(work: Work) -> None:
        random, number = Random(seed), 0
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": int(_DELIVERY_S * 1000),
            "request.timeout.ms": _ANSWER_MS,
            "socket.timeout.ms": _ANSWER_MS,
            "reconnect.backoff.max.ms": 1_000,
            "queue.buffering.max.messages": 300,
            # What it decides about its sequences.
            "debug": "eos",
            **RECOVERY,
        }
        producer = Producer(settings)

        # A callback takes no lock: confluent-kafka calls it with an exception set after a fatal error, and then
        # ``with`` raises between the lock and its block.
        answers: list[tuple[KafkaError | None, Message]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            answers.append((error, message))

        def note_answers() -> None:
            while answers:
                error, message = answers.pop(0)
                if error is not None:
                    work.ledger.error("kafka producer", error)
                    continue
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert value is not None
                assert partition is not None
                work.ledger.ack(("kafka", partition), -1 if offset is None else offset, value, "kafka")

        while not work.is_over.is_set():
            try:
                with suppress(BufferError):
                    producer.produce(
                        "kafka",
                        value_of("k", number, work.ledger, random),
                        partition=number % PARTITIONS,
                        on_delivery=delivered,
                    )
                    number += 1
                # Raises a fatal error, too.
                producer.poll(0.01)
            except (KafkaException, SystemError) as fatal:
                # An idempotent producer that cannot go on; what it had not delivered has failed.
                work.ledger.error("kafka producer (fatal)", fatal)
                with suppress(KafkaException, SystemError):
                    producer.flush(5)
                producer = Producer(settings)
            note_answers()
        try:
            if producer.flush(_DELIVERY_S):
                work.ledger.fail("records of the Kafka producer were not delivered")
        except (KafkaException, SystemError) as fatal:
            work.ledger.error("kafka producer (fatal)", fatal)
        note_answers()

    return run


def stele_producer(url: str, topic: str, letter: str, seed: int) -> Callable[[Work], None]:
    """The producer of the client library, over HTTP or binary, idempotent."""

    def run(work: Work) -> None:
        random, number = Random(seed), 0
        with (
            Client(url, timeout_s=ANSWER_S) as client,
            SteleProducer(
                client, topic, delivery_timeout_s=_DELIVERY_S, request_timeout_s=ANSWER_S, in_flight_max=3
            ) as producer,
        ):
            while not work.is_over.is_set():
                sent = [
                    (
                        value_of(letter, number + at, work.ledger, random),
                        (number + at) % PARTITIONS,
                    )
                    for at in range(random.choice((1, 10, 30)))
                ]
                number += len(sent)
                futures = [producer.send(value, partition=partition) for value, partition in sent]
                for (value, partition), future in zip(sent, futures, strict=True):
                    try:
                        receipt = future.result()
                    except SteleClientError as error:
                        work.ledger.error(f"{topic} producer", error)
                        continue
                    work.ledger.ack(
                        (topic, partition),
                        receipt.offset,
                        value,
                        topic,
                        is_replicated=receipt.durability is Durability.REPLICATED,
                    )
                work.is_over.wait(0.05)
            # What failed was counted above.
            producer._core.raise_failures  # noqa: B018

    return run


def plain_http_producer(urls: Sequence[str], topic: str, seed: int) -> Callable[[Work], None]:
    """POSTs without a producer id: what is not acknowledged is not sent again."""

    def run(work: Work) -> None:
        random, number = Random(seed), 0
        with httpx.Client(timeout=ANSWER_S) as http:
            while not work.is_over.is_set():
                values = [
                    value_of("p", number + at, work.ledger, random) for at in range(random.choice((1, 5)))
                ]
                number += len(values)
                records = [{"value": value.decode(), "partition": number % PARTITIONS} for value in values]
                try:
                    answer = http.post(
                        f"{random.choice(urls)}/v1/topics/{topic}/records", json={"records": records}
                    )
                except httpx.HTTPError as error:
                    work.ledger.error("http", error)
                    work.is_over.wait(0.2)
                    continue
                if answer.status_code != 200:
                    work.ledger.error("http", f"{answer.status_code} {answer.json().get('type', '')}")
                    work.is_over.wait(0.2)
                    continue
                is_replicated = answer.json()["durability"] == "replicated"
                for value, receipt in zip(values, answer.json()["records"], strict=True):
                    if "offset" not in receipt:
                        work.ledger.error("http", receipt.get("error", receipt))
                        continue
                    work.ledger.ack(
                        (topic, number % PARTITIONS),
                        receipt["offset"],
                        value,
                        "plain",
                        is_replicated=is_replicated,
                    )
                work.is_over.wait(0.1)

    return run


# ── consumers ──


class _LastLines(logging.Handler):
    """Keeps the last lines that a client has logged, for the failure that they may explain."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[tuple[float, str]] = deque(maxlen=60_000)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append((time.time(), record.getMessage()))

    def has_sought(self, partition: int, offset: int) -> bool:
        return any(f"Seek kafka [{partition}] to offset {offset} " in line for _, line in list(self._lines))

    def about(self, partition: int) -> str:
        """What concerns ``partition`` or the group, a line each."""
        return "\n".join(
            f"{time.strftime('%H:%M:%S', time.gmtime(time_s))}.{int(time_s % 1 * 1000):03} {line}"
            for time_s, line in list(self._lines)
            if f"[{partition}]" in line or "[thrd:main]" in line
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """A member got ``offset`` and not the one before. The log of librdkafka, which may say why, comes later."""

    partition: int
    offset: int
    text: str
    until_s: float


class _Commits:
    """The commits of a member, one at a time.

    They do not wait: a synchronous commit of librdkafka may hang for ever
    (https://github.com/confluentinc/confluent-kafka-python/issues/1801).
    """

    def __init__(self, work: Work, group: str) -> None:
        self._work = work
        self._group = group
        # That of the ledger when the commit under way was sent; None if there is none.
        self._window: int | None = None

    def begin(self, consumer: Consumer) -> None:
        if self._window is None:
            self._window = self._work.ledger.window
            consumer.commit(asynchronous=True)

    def ended(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        window, self._window = self._window, None
        assert window is not None
        if error is not None:
            if error.code() != KafkaError._NO_OFFSET:
                self._work.ledger.error(self._group, error)
            return
        for partition in partitions:
            if partition.error is None:
                self._work.ledger.commit(
                    self._group, (partition.topic, partition.partition), partition.offset, window
                )


def kafka_member(bootstrap: str, group: str, settings: dict[str, Any]) -> Callable[[Work], None]:
    """A member of a group of librdkafka that commits what it has read."""

    def run(work: Work) -> None:
        logger, lines, commits = logging.Logger(group), _LastLines(), _Commits(work, group)
        logger.addHandler(lines)
        # A member that stands in a call hands no lines over: to see those, let it write them to stderr.
        to: dict[str, Any] = {} if os.environ.get("STELE_FAULTS_MEMBERS_TO_STDERR") else {"logger": logger}
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": _SESSION_MS,
                "socket.timeout.ms": _ANSWER_MS,
                "reconnect.backoff.max.ms": 1_000,
                "debug": "cgrp,topic,fetch",
                "on_commit": commits.ended,
                **RECOVERY,
                **settings,
            },
            **to,
        )
        # Of the places that are assigned: the offset after the last record, and that of the first.
        positions: dict[Place, int] = {}
        begun: dict[Place, int] = {}
        assigned_s = time.monotonic()

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            nonlocal assigned_s
            assigned_s = time.monotonic()
            for partition in partitions:
                positions.pop((partition.topic, partition.partition), None)
                begun.pop((partition.topic, partition.partition), None)

        consumer.subscribe(["kafka"], on_assign=assigned)
        commit_s = time.monotonic() + 1
        gaps: list[_Gap] = []
        try:
            while not work.is_over.is_set() or gaps:
                for message in consumer.consume(200, 0.2):
                    if message.error() is not None:
                        work.ledger.error(group, message.error())
                        continue
                    topic, partition, offset = message.topic(), message.partition(), message.offset()
                    value = message.value()
                    assert topic is not None
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    place = (topic, partition)
                    expected = positions.get(place, offset)
                    if offset < expected and work.ledger.era:
                        # It has found that its log was truncated, and begins where auto.offset.reset says.
                        work.ledger.counts[f"truncations noticed by {group}"] += 1
                    elif offset != expected:
                        # librdkafka asks for the end of its leader epoch while it goes on fetching. If it has got
                        # further than the answer says, it takes the log for truncated, seeks to the answer, and drops
                        # what it had fetched and not handed over.
                        #
                        # It begins anew if a broker that was the leader answers its ListOffsets late, as one
                        # that was paused does: it asks the new leader for the same (rd_kafka_toppar_handle_Offset).
                        if offset != begun[place]:
                            gaps.append(
                                _Gap(
                                    partition=partition,
                                    offset=offset,
                                    text=f"{work.name} of {group} read {place} from {expected} on and got {offset};"
                                    f" it had begun at {begun[place]}, {time.monotonic() - assigned_s:.1f} s ago",
                                    until_s=time.monotonic() + _LOG_LATE_S,
                                )
                            )
                        work.ledger.error(
                            f"{group} (begun anew or sought by librdkafka)", f"{place} at {offset}"
                        )
                    begun.setdefault(place, offset)
                    positions[place] = offset + 1
                    epoch = message.leader_epoch()
                    work.ledger.see(place, offset, value, -1 if epoch is None else epoch)
                    work.ledger.counts[f"read by {group}"] += 1
                gaps = [gap for gap in gaps if not lines.has_sought(gap.partition, gap.offset)]
                if gaps and time.monotonic() >= gaps[0].until_s:
                    gap = gaps.pop(0)
                    work.ledger.fail(f"{gap.text}; its log:\n{lines.about(gap.partition)}")
                if time.monotonic() >= commit_s:
                    commit_s = time.monotonic() + 1
                    commits.begin(consumer)
        finally:
            _close(consumer, work)

    return run


def _close(consumer: Consumer, work: Work) -> None:
    """Close a consumer of librdkafka, which after failures of brokers may never come back from it.

    https://github.com/confluentinc/confluent-kafka-python/issues/1667; all its requests end after ``_ANSWER_MS``.
    """
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(_CLOSE_S)
    if closing.is_alive():
        work.ledger.error(work.name, "librdkafka does not come back from its close")


def leased_reader(url: str, group: str, topic: str) -> Callable[[Work], None]:
    """A reader of a managed group of the client library."""

    def run(work: Work) -> None:
        while not work.is_over.is_set():
            try:
                with (
                    Client(url, timeout_s=ANSWER_S) as client,
                    client.group(group, topic, wait_s=0.5, lease_s=_SESSION_MS / 1000) as reader,
                ):
                    while not work.is_over.is_set():
                        batch = reader.poll()
                        if batch is None:
                            continue
                        ends: dict[Place, int] = {}
                        window = work.ledger.window
                        with batch:
                            for record in batch:
                                place = (record.topic, record.partition)
                                ends[place] = max(ends.get(place, 0), record.offset + 1)
                                work.ledger.see(place, record.offset, record.value or b"")
                                work.ledger.counts[f"read by {group}"] += 1
                        for place, end in ends.items():
                            work.ledger.commit(group, place, end, window)
            except SteleClientError as error:
                work.ledger.error(group, error)
                work.is_over.wait(0.2)

    return run


def tail(urls: Sequence[str], topic: str, seed: int) -> Callable[[Work], None]:
    """Reads a topic from its start at changing brokers; offsets follow each other."""

    def run(work: Work) -> None:
        random = Random(seed)
        positions = dict.fromkeys(range(PARTITIONS), 0)
        clients = [Client(url, timeout_s=ANSWER_S) for url in urls]
        try:
            while not work.is_over.is_set():
                partition = random.randrange(PARTITIONS)
                try:
                    fetched = random.choice(clients).fetch(topic, partition, positions[partition])
                except SteleClientError as error:
                    work.ledger.error(f"tail of {topic}", error)
                    work.is_over.wait(0.1)
                    continue
                for record in fetched.records:
                    if record.offset != positions[partition]:
                        work.ledger.fail(
                            f"{topic} {partition} has a gap: {positions[partition]}, {record.offset}"
                        )
                    positions[partition] = record.offset + 1
                    work.ledger.see((topic, partition), record.offset, record.value or b"")
                work.ledger.counts[f"read by the tail of {topic}"] += len(fetched.records)
                work.is_over.wait(0.1)
        finally:
            for client in clients:
                client.close()

    return run


def offset_watcher(urls: Sequence[str], groups: Sequence[str], seed: int) -> Callable[[Work], None]:
    """Asks any broker for the committed offsets of groups, which never fall."""

    def run(work: Work) -> None:
        random = Random(seed)
        with httpx.Client(timeout=ANSWER_S) as http:
            while not work.is_over.wait(0.2):
                group, url = random.choice(groups), random.choice(urls)
                before = work.ledger.committed_now(group)
                try:
                    answer = http.get(f"{url}/v1/groups/{group}")
                except httpx.HTTPError as error:
                    work.ledger.error("watcher", error)
                    continue
                if answer.status_code != 200:
                    if answer.status_code == 404:
                        work.ledger.see_committed(group, before, None, url)
                    work.ledger.error("watcher", f"{answer.status_code} {answer.text[:50]}")
                    continue
                shown = {
                    (row["topic"], row["partition"]): row["committed"]
                    for row in answer.json()["partitions"]
                    if row["committed"] is not None
                }
                work.ledger.see_committed(group, before, shown, url)

    return run
