"""Transactions of the Kafka protocol: each stores the same value in two partitions, or in none."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from .clients import ANSWER_S, RECOVERY, Work, value_of
from .ledger import TRANSACTIONAL

TOPIC = TRANSACTIONAL
PLACES = ((TOPIC, 0), (TOPIC, 1))
_ANSWER_MS = int(ANSWER_S * 1000)
_TRANSACTION_S = 20.0
_PATIENCE_S = 120.0


class _GivenUp(Exception):
    """The producer cannot go on, and it is not known what became of its transaction."""


def pair_producer(bootstrap: str, seed: int) -> Callable[[Work], None]:
    """librdkafka's transactional producer, one transaction after the other."""

    def run(work: Work) -> None:
        random, number = Random(seed), 0
        producer: Producer | None = None
        while not work.is_over.is_set():
            value = value_of("t", number, work.ledger, random)
            number += 1
            try:
                if producer is None:
                    producer = _begun(bootstrap, work)
                offsets = _store(producer, value, work)
            except _GivenUp:
                producer = None
                work.is_over.wait(0.5)
                continue
            for (topic, partition), offset in offsets.items():
                work.ledger.ack((topic, partition), offset, value, TOPIC)
            work.is_over.wait(0.05)
        # What a version before it left open is aborted, so that readers get to the end.
        while True:
            try:
                _begun(bootstrap, work)
            except _GivenUp:
                continue
            return

    return run


def _begun(bootstrap: str, work: Work) -> Producer:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": TOPIC,
        "transaction.timeout.ms": 60_000,
        "request.timeout.ms": _ANSWER_MS,
        "socket.timeout.ms": _ANSWER_MS,
        "reconnect.backoff.max.ms": 1_000,
        **RECOVERY,
    }
    producer = Producer(settings)
    try:
        producer.init_transactions(_TRANSACTION_S)
    except KafkaException as error:
        work.ledger.error("pair producer", error.args[0])
        raise _GivenUp from error
    return producer


def _store(producer: Producer, value: bytes, work: Work) -> dict[tuple[str, int], int]:
    """Return the offsets of a committed transaction; none if it was aborted."""
    offsets: dict[tuple[str, int], int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None:
            offsets[TOPIC, partition] = offset

    try:
        producer.begin_transaction()
        for topic, partition in PLACES:
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        _ended(producer.commit_transaction, work)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        work.ledger.error("pair producer", reason)
        if not reason.txn_requires_abort():
            raise _GivenUp from error
        try:
            _ended(producer.abort_transaction, work)
        except KafkaException as again:
            work.ledger.error("pair producer (abort)", again.args[0])
            raise _GivenUp from again
        return {}
    return offsets


def _ended(end: Callable[[float], None], work: Work) -> None:
    """Call ``end`` until the transaction has ended."""
    while True:
        try:
            end(_TRANSACTION_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            work.ledger.error("pair producer", error.args[0])
        else:
            return


def committed_in(bootstrap: str, place: tuple[str, int]) -> dict[int, bytes]:
    """Return what is committed in a partition, by offset."""
    records: dict[int, bytes] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(*place, 0)])
        while True:
            message = consumer.poll(_PATIENCE_S)
            if message is None:
                raise TimeoutError(f"{place} cannot be read to its end")
            error = message.error()
            if error is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                records[offset] = value
            elif error.code() == KafkaError._PARTITION_EOF:
                return records
            elif not error.retriable() and error.code() not in (
                KafkaError._TRANSPORT,
                KafkaError._ALL_BROKERS_DOWN,
            ):
                raise KafkaException(error)
    finally:
        consumer.close()
