"""Processes that make the transfers of ``tests.support.bank``, each over one protocol with one client library.

``python -m tests.support.bank_tellers KIND NAME FIRST TIMEOUT_S ADDRESS…`` makes one transfer after the other, from
number FIRST on, until SIGTERM. It prints ``begun NUMBER`` and then ``committed``, ``aborted`` or ``unknown`` with
the number. An error of the library is part of the work: the teller finds out what it can, and goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO, Any, ClassVar, NamedTuple

import confluent_kafka
import httpx
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]
from kafka.structs import TopicPartition as KafkaPythonPartition
from stele import Client, TransactionError
from stele.broker_process import BrokerProcess
from stele.errors import ProducerStateError, SteleClientError
from stele.operations.transactional import EndTransaction, InitTransactions, TransactionalProducer
from stele.producing.chunks import ChunkSender, ProduceChunk
from stele.records import NewRecord
from stele.wire import messages as m
from stele.wire.compression import Compression

from load.pausing import pause, resume
from tests.support.bank import LEASE_TOPIC, OFFSET_PLACE, Books, Outcome, Transfer, transfer_of

_REPOSITORY = Path(__file__).parents[2]
# How long a call is repeated while the broker is down. Nothing takes this long unless the test has failed.
_PATIENCE_S = 60.0
_LIBRDKAFKA_PATIENCE_S = 5.0
_PAUSE_S = 0.05
_END_TIMEOUT_S = 90.0


class Addresses(NamedTuple):
    http: str
    binary: str
    kafka: str


def offsets_group(teller: str) -> str:
    """Return the group in which a teller commits the number of its next transfer."""
    return f"book-of-{teller}"


class Teller(ABC):
    """Makes transfers. After an error it begins again with its transactional id."""

    # Whether its transfers commit offsets.
    has_offsets: ClassVar[bool] = True
    # Whether it may repeat a transfer of which it does not know what became of it.
    repeats: ClassVar[bool] = False

    def __init__(self, name: str, addresses: Addresses, timeout_s: float) -> None:
        self._name = name
        self._addresses = addresses
        self._timeout_s = timeout_s

    @abstractmethod
    def make(self, transfer: Transfer, number: int) -> Outcome: ...


class _OfLibrdkafka(Teller):
    """confluent-kafka. It repeats a call as often as the library says that it may.

    It commits no offsets: after a kill of the broker ``send_offsets_to_transaction`` of librdkafka 2.16 may send
    nothing more, and overrun its timeout, though the broker is there. The same happens with Apache Kafka 4.3.
    """

    has_offsets = False

    def __init__(self, name: str, addresses: Addresses, timeout_s: float) -> None:
        super().__init__(name, addresses, timeout_s)
        self._producer: confluent_kafka.Producer | None = None
        # Their destructors would wait.
        self._left: list[confluent_kafka.Producer] = []

    def _begin(self) -> confluent_kafka.Producer:
        if self._producer is None:
            self._producer = producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self._addresses.kafka,
                    "transactional.id": self._name,
                    "transaction.timeout.ms": int(self._timeout_s * 1000),
                    "log_level": 0,
                    # Brokers are back at once.
                    "reconnect.backoff.max.ms": 500,
                }
            )
            _until_done(producer.init_transactions)
        self._producer.begin_transaction()
        return self._producer

    def make(self, transfer: Transfer, number: int) -> Outcome:
        is_asked = False
        try:
            producer = self._begin()
            for (topic, partition), values in transfer.values().items():
                for value in values:
                    producer.produce(topic, value, partition=partition)
            if transfer.is_aborted:
                _until_done(producer.abort_transaction)
                return "aborted"
            is_asked = True
            _until_done(producer.commit_transaction)
        except confluent_kafka.KafkaException as raised:
            error: confluent_kafka.KafkaError = raised.args[0]
            is_aborted = error.txn_requires_abort() or not is_asked
            if not (error.txn_requires_abort() and self._abort()):
                self._leave()
            return "aborted" if is_aborted else "unknown"
        return "committed"

    def _abort(self) -> bool:
        assert self._producer is not None
        try:
            _until_done(self._producer.abort_transaction)
        except confluent_kafka.KafkaException:
            return False
        return True

    def _leave(self) -> None:
        if self._producer is not None:
            self._left.append(self._producer)
            self._producer = None


def _until_done(call: Callable[[float], None]) -> None:
    """Repeat a call of librdkafka while it says that the call may be repeated. Raises ``KafkaException``."""
    give_up_s = time.monotonic() + _LIBRDKAFKA_PATIENCE_S
    while True:
        try:
            call(_LIBRDKAFKA_PATIENCE_S)
        except confluent_kafka.KafkaException as raised:
            if not raised.args[0].retriable() or time.monotonic() > give_up_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return


class _OfKafkaPython(Teller):
    def __init__(self, name: str, addresses: Addresses, timeout_s: float) -> None:
        super().__init__(name, addresses, timeout_s)
        self._producer: Any = None

    def _begin(self) -> Any:
        if self._producer is None:
            producer: Any = KafkaProducer(
                bootstrap_servers=self._addresses.kafka,
                transactional_id=self._name,
                transaction_timeout_ms=int(self._timeout_s * 1000),
                reconnect_backoff_max_ms=500,
            )
            producer.init_transactions()
            self._producer = producer
        self._producer.begin_transaction()
        return self._producer

    def make(self, transfer: Transfer, number: int) -> Outcome:
        is_asked = False
        try:
            producer = self._begin()
            for (topic, partition), values in transfer.values().items():
                for value in values:
                    producer.send(topic, value, partition=partition)
            offsets: Any = {KafkaPythonPartition(*OFFSET_PLACE): OffsetAndMetadata(number + 1, "", -1)}
            producer.send_offsets_to_transaction(offsets, offsets_group(self._name))
            if transfer.is_aborted:
                producer.abort_transaction()
                return "aborted"
            is_asked = True
            producer.commit_transaction()
        except KafkaError:
            producer, self._producer = self._producer, None
            if producer is not None:
                producer.close(timeout=0)
            time.sleep(_PAUSE_S)
            return "unknown" if is_asked else "aborted"
        return "committed"


class _OfOneRequest(Teller):
    """``POST /v1/transactions`` with an idempotency key, repeated until it is answered."""

    repeats = True

    def __init__(self, name: str, addresses: Addresses, timeout_s: float) -> None:
        super().__init__(name, addresses, timeout_s)
        self._http = httpx.Client(base_url=addresses.http, timeout=_PATIENCE_S)
        # A lease whose records another one has acknowledged: a transaction that acknowledges it is aborted.
        self._group = f"leases-of-{name}-{os.getpid()}"
        self._lease = {"group": self._group, "lease": self._poll()}
        self._answered(f"/v1/groups/{self._group}/nack", {"lease": self._lease["lease"]})
        self._answered(f"/v1/groups/{self._group}/ack", {"lease": self._poll()})

    def _poll(self) -> str:
        poll = {"topics": [LEASE_TOPIC], "wait_ms": 30_000}
        return self._answered(f"/v1/groups/{self._group}/poll", poll).json()["lease"]

    def _answered(self, path: str, body: object, *, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        while True:
            try:
                answer = self._http.post(path, json=body, headers=headers)
            except httpx.TransportError:
                time.sleep(_PAUSE_S)
                continue
            is_running = answer.status_code == 409 and answer.json()["type"].endswith(
                "/idempotency-key-in-use"
            )
            if answer.status_code < 500 and not is_running:
                return answer
            time.sleep(_PAUSE_S)

    def make(self, transfer: Transfer, number: int) -> Outcome:
        topic, partition = OFFSET_PLACE
        body: dict[str, Any] = {
            "records": [
                {"topic": place.topic, "partition": place.partition, "value": value.decode()}
                for place, values in transfer.values().items()
                for value in values
            ],
            "offsets": [
                {
                    "group": offsets_group(self._name),
                    "topic": topic,
                    "partition": partition,
                    "offset": number + 1,
                }
            ],
        }
        if transfer.is_aborted:
            body["leases"] = [self._lease]
        answer = self._answered("/v1/transactions", body, key=transfer.name)
        if transfer.is_aborted:
            assert 400 <= answer.status_code < 500, answer.text
            return "aborted"
        assert answer.status_code == 200, answer.text
        return "committed"


class _Cancelled(Exception):
    pass


class _OfOpenTransactions(Teller):
    """``client.transaction`` over HTTP."""

    def __init__(self, name: str, addresses: Addresses, timeout_s: float) -> None:
        super().__init__(name, addresses, timeout_s)
        self._client = Client(addresses.http, timeout_s=10)

    def make(self, transfer: Transfer, number: int) -> Outcome:
        is_asked = False
        try:
            with self._client.transaction(self._name, timeout_s=self._timeout_s) as tx:
                for (topic, partition), values in transfer.values().items():
                    tx.produce_many(topic, [NewRecord(value, partition=partition) for value in values])
                tx.commit_offset(offsets_group(self._name), OFFSET_PLACE, number + 1)
                if transfer.is_aborted:
                    raise _Cancelled
                is_asked = True
        except _Cancelled:
            return "aborted"
        except SteleClientError as error:
            time.sleep(_PAUSE_S)
            is_open = is_asked and (error.is_outcome_unknown or not isinstance(error, TransactionError))
            return "unknown" if is_open else "aborted"
        return "committed"


class _OfBinaryProtocol(Teller):
    """The requests of the binary protocol; they commit no offsets."""

    has_offsets = False

    def __init__(self, name: str, addresses: Addresses, timeout_s: float) -> None:
        super().__init__(name, addresses, timeout_s)
        self._client = Client(addresses.binary, timeout_s=10)
        self._producer: TransactionalProducer | None = None

    def make(self, transfer: Transfer, number: int) -> Outcome:
        is_asked = False
        try:
            if self._producer is None:
                timeout_ms = int(self._timeout_s * 1000)
                self._producer = self._call(
                    InitTransactions(transactional_id=self._name, timeout_ms=timeout_ms)
                )
            producer = self._producer
            sender = ChunkSender(self._client, patience_s=_PATIENCE_S)
            for (topic, partition), values in transfer.values().items():
                sender.put(
                    ProduceChunk(
                        topic=topic,
                        partition=partition,
                        rows=[(time.time_ns() // 1_000_000, None, value, []) for value in values],
                        acks=m.ACKS_ALL if number % 2 else 1,
                        timeout_ms=10_000,
                        compression=Compression.NONE,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                        base_sequence=0,
                        transactional_id=self._name,
                    )
                )
            sender.send()
            is_asked = not transfer.is_aborted
            end = EndTransaction(transactional_id=self._name, producer=producer, is_commit=is_asked)
            self._producer = self._call(end)
        except ProducerStateError:
            # Fenced, or aborted after its timeout. An end that was answered before would be answered again.
            self._producer = None
            return "aborted"
        except SteleClientError:
            self._producer = None
            return "unknown" if is_asked else "aborted"
        return "committed" if is_asked else "aborted"

    def _call(self, operation: InitTransactions | EndTransaction) -> TransactionalProducer:
        give_up_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._client.call(operation)
            except SteleClientError as error:
                if not error.retriable or time.monotonic() > give_up_s:
                    raise
            time.sleep(_PAUSE_S)


TELLERS: dict[str, type[Teller]] = {
    "confluent-kafka": _OfLibrdkafka,
    "kafka-python": _OfKafkaPython,
    "http-request": _OfOneRequest,
    "http-client": _OfOpenTransactions,
    "binary": _OfBinaryProtocol,
}


# ── the process ──


def main() -> None:
    kind, name, first, timeout_s, *addresses = sys.argv[1:]
    is_over = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        is_over.set()

    signal.signal(signal.SIGTERM, end)
    teller = TELLERS[kind](name, Addresses(*addresses), float(timeout_s))
    number = int(first)
    while not is_over.is_set():
        # Written at once, as a whole: a kill leaves a line or none.
        os.write(1, b"begun %d\n" % number)
        outcome = teller.make(transfer_of(name, number), number)
        os.write(1, f"{outcome} {number}\n".encode())
        number += 1
    os._exit(0)  # Libraries may wait for the broker when they are closed.


class TellerProcess:
    """A teller, which can be killed, frozen and started again; what it says is noted in ``books``."""

    def __init__(
        self, kind: str, name: str, broker: BrokerProcess, books: Books, stderr: Path, *, timeout_s: float
    ) -> None:
        self.kind = kind
        self.name = name
        self._addresses = Addresses(broker.http_url, broker.binary_url, broker.kafka_bootstrap)
        self._books = books
        self._stderr = stderr
        self._timeout_s = timeout_s
        self._begun = -1
        self._known = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    @property
    def has_offsets(self) -> bool:
        return TELLERS[self.kind].has_offsets

    def start(self) -> None:
        is_repeated = TELLERS[self.kind].repeats and self._begun > self._known
        first = self._begun if is_repeated else self._begun + 1
        command = [sys.executable, "-m", "tests.support.bank_tellers", self.kind, self.name, str(first)]
        command += [str(self._timeout_s), *self._addresses]
        with self._stderr.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=_REPOSITORY
            )
        assert self._process.stdout is not None
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,))
        self._listener.start()

    def _listen(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                outcome, number = line.decode().split()
                transfer = f"{self.name}/{number}"
                match outcome:
                    case "begun":
                        self._begun = int(number)
                        self._books.note(transfer, "unknown")
                    case "committed" | "aborted" | "unknown":
                        self._known = int(number)
                        self._books.note(transfer, outcome)
                    case _:
                        raise AssertionError(line)

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}:\n{self._stderr.read_text()[-4000:]}"

    def freeze(self) -> None:
        assert self._process is not None
        pause(self._process.pid)

    def thaw(self) -> None:
        assert self._process is not None
        resume(self._process.pid)

    def kill(self) -> None:
        """kill -9; returns when all that it said before is noted."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def stop(self) -> None:
        """Let it finish its transfer."""
        assert self._process is not None
        self._process.terminate()
        code = self._wait()
        # A process that has only just been started does not handle the signal yet.
        assert code in (0, -signal.SIGTERM), (
            f"{self.name} ended with {code}:\n{self._stderr.read_text()[-4000:]}"
        )

    def _wait(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert self._listener is not None
        try:
            code = process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        self._listener.join()
        return code


if __name__ == "__main__":
    main()
