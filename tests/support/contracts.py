"""Topics with a contract, and every way to send them records."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import httpx
from confluent_kafka import KafkaException, Producer
from stele import Client, InvalidRecordError, NewRecord
from stele.broker_process import BrokerProcess
from stele.errors import ProduceError
from stele.schemas import framing
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode

from tests.support.batches import batch_of
from tests.support.binary_peer import Peer, error_text, produce_frame, produced_offset
from tests.support.kafka_peer import KafkaPeer, only_partition, produce

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
    }
)
# The bytes of {"id": 1, "item": "tea"}; and of an item that is cut off.
TEA, CUT = bytes((2, 6)) + b"tea", bytes((2, 16)) + b"tea"
_numbers = itertools.count()


class Refusal(NamedTuple):
    """Why records were refused: the index of the first one at fault, -1 if the protocol has no place for it."""

    record: int
    reason: str


# Sends values to partition 0 of a topic in one batch; None if they were taken.
Send = Callable[[str, Sequence[bytes]], Refusal | None]


def register(url: str, subject: str, schema: str = ORDER, kind: str = "AVRO") -> int:
    """Register a schema, and return its id."""
    answer = httpx.post(f"{url}/subjects/{subject}/versions", json={"schema": schema, "schemaType": kind})
    assert answer.status_code == 200, answer.text
    return answer.json()["id"]


def framed(schema_id: int, payload: bytes = TEA) -> bytes:
    return framing.join(schema_id, payload)


def make_topic(http: httpx.Client, topic: str, validation: str = "content", **configs: str) -> None:
    """Create a topic whose values are validated, with configurations whose dots are underscores."""
    all_configs = {"stele.value.schema.validation": validation} | {
        name.replace("_", "."): value for name, value in configs.items()
    }
    answer = http.put(f"/v1/topics/{topic}", json={"partitions": 1, "configs": all_configs})
    assert answer.status_code == 201, answer.text


def end_of(http: httpx.Client, topic: str) -> int:
    (partition,) = http.get(f"/v1/topics/{topic}").json()["partitions"]
    return partition["high_watermark"]


class Senders:
    """The ways to send records to one broker, by their names."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._http = httpx.Client(base_url=broker.http_url)
        self._kafka = KafkaPeer(broker)
        self._binary = Client(broker.binary_url)
        self._over_http = Client(broker.http_url)
        self.by_name: Mapping[str, Send] = {
            "Kafka Produce": self._kafka_produce,
            "Kafka Produce of an old version": self._kafka_old,
            "Kafka Produce, compressed": self._kafka_compressed,
            "Kafka transaction": self._kafka_transaction,
            "librdkafka": self._librdkafka,
            "HTTP JSON": self._http_json,
            "HTTP NDJSON": self._http_ndjson,
            "HTTP octets": self._http_octets,
            "HTTP If-Match": self._http_conditional,
            "HTTP idempotent": self._http_idempotent,
            "HTTP transaction": self._http_transaction,
            "HTTP atomic request": self._http_atomic,
            "binary PRODUCE": self._binary_produce,
            "binary batch": lambda topic, values: self._client(self._binary, topic, values),
            "binary batch, conditional": self._binary_conditional,
            "client over HTTP": lambda topic, values: self._client(self._over_http, topic, values),
            "client transaction": self._client_transaction,
        }

    def close(self) -> None:
        self._http.close()
        self._kafka.close()
        self._binary.close()
        self._over_http.close()

    # ── Kafka ──

    def _kafka_call(self, topic: str, batch: bytearray, version: int = 12) -> Refusal | None:
        done = only_partition(self._kafka.call(produce(topic, batch, acks=-1), version))
        if done.error_code == ErrorCode.NONE:
            return None
        assert done.error_code == ErrorCode.INVALID_RECORD, done
        if version < 8:
            return Refusal(-1, "")
        return Refusal(done.record_errors[0].batch_index, done.record_errors[0].batch_index_error_message)

    def _kafka_produce(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        return self._kafka_call(topic, batch_of(values))

    def _kafka_old(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        return self._kafka_call(topic, batch_of(values), 3)

    def _kafka_compressed(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        return self._kafka_call(topic, batch_of(values, compression=Compression.GZIP))

    def _kafka_transaction(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.kafka_bootstrap,
                "transactional.id": f"contracts-{next(_numbers)}",
                "linger.ms": 1000,
            }
        )
        producer.init_transactions()
        producer.begin_transaction()
        refusal = _delivered(producer, topic, values)
        try:
            producer.commit_transaction()
        except KafkaException:
            assert refusal is not None
            producer.abort_transaction()
        return refusal

    def _librdkafka(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        producer = Producer({"bootstrap.servers": self._broker.kafka_bootstrap, "linger.ms": 1000})
        return _delivered(producer, topic, values)

    # ── HTTP ──

    def _answer(self, answer: httpx.Response) -> Refusal | None:
        if answer.is_success:
            return None
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (422, "/problems/broken-contract"), answer.text
        assert (problem["kafka_code"], problem["retriable"]) == (ErrorCode.INVALID_RECORD, False)
        return Refusal(problem["index"], problem["detail"])

    def _post(
        self, topic: str, values: Sequence[bytes], headers: Mapping[str, str] | None = None
    ) -> Refusal | None:
        body = {"records": [record(value) for value in values]}
        return self._answer(
            self._http.post(f"/v1/topics/{topic}/records?partition=0", json=body, headers=headers)
        )

    def _http_json(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        if len(values) == 1:
            # The fast path.
            body = {"records": [record(values[0])]}
            return self._answer(self._http.post(f"/v1/topics/{topic}/records", json=body))
        return self._post(topic, values)

    def _http_ndjson(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        lines = "".join(json.dumps(record(value)) + "\n" for value in values)
        headers = {"Content-Type": "application/x-ndjson"}
        return self._answer(self._http.post(f"/v1/topics/{topic}/records", content=lines, headers=headers))

    def _http_octets(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        headers = {"Content-Type": "application/octet-stream"}
        for index, value in enumerate(values):
            refusal = self._answer(
                self._http.post(f"/v1/topics/{topic}/records", content=value, headers=headers)
            )
            if refusal is not None:
                return refusal._replace(record=index)
        return None

    def _http_conditional(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        return self._post(topic, values, {"If-Match": f'"{end_of(self._http, topic)}"'})

    def _http_idempotent(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        producer = self._http.post("/v1/producers").json()
        headers = {
            "Producer-Id": str(producer["producer_id"]),
            "Producer-Epoch": str(producer["producer_epoch"]),
            "Producer-Sequence": "0",
        }
        return self._post(topic, values, headers)

    def _http_transaction(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        path = f"/v1/transactions/contracts-{next(_numbers)}"
        producer = self._http.post(f"{path}/begin").json()
        headers = {
            "Producer-Id": str(producer["producer_id"]),
            "Producer-Epoch": str(producer["producer_epoch"]),
        }
        body = {"records": [{"topic": topic} | record(value) for value in values]}
        refusal = self._answer(self._http.post(f"{path}/records", json=body, headers=headers))
        end = "commit" if refusal is None else "abort"
        assert self._http.post(f"{path}/{end}", headers=headers).is_success
        return refusal

    def _http_atomic(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        body = {"records": [{"topic": topic} | record(value) for value in values]}
        return self._answer(self._http.post("/v1/transactions", json=body))

    # ── binary and client ──

    def _binary_produce(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        """Send all frames at once; each is a request of its own."""
        with Peer(self._broker) as peer:
            peer.send(*(produce_frame(topic, value) for value in values))
            frames = peer.frames(len(values))
        refusal = None
        for index, frame in enumerate(frames):
            if frame[5]:
                produced_offset(frame)
            elif refusal is None:
                refusal = Refusal(index, error_text(frame, 4))
        return refusal

    def _client(
        self, client: Client, topic: str, values: Sequence[bytes], expected_end: int | None = None
    ) -> Refusal | None:
        records = [NewRecord(value, partition=0) for value in values]
        try:
            client.produce_many(topic, records, expected_end=expected_end)
        except InvalidRecordError as error:
            return Refusal(_index_in(str(error)), str(error))
        except ProduceError as error:
            first = next(iter(error.errors.values()))
            assert isinstance(first, InvalidRecordError), first
            return Refusal(_index_in(str(first)), str(first))
        return None

    def _binary_conditional(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        return self._client(self._binary, topic, values, end_of(self._http, topic))

    def _client_transaction(self, topic: str, values: Sequence[bytes]) -> Refusal | None:
        try:
            with self._over_http.transaction(f"contracts-{next(_numbers)}") as transaction:
                for value in values:
                    transaction.produce(topic, value)
        except InvalidRecordError as error:
            return Refusal(_index_in(str(error)), str(error))
        return None


def record(value: bytes) -> dict[str, str]:
    return {"value_b64": base64.b64encode(value).decode()}


def _index_in(message: str) -> int:
    """Return the index that a message has."""
    return int(message.partition("record ")[2].partition(" ")[0])


def _delivered(producer: Producer, topic: str, values: Sequence[bytes]) -> Refusal | None:
    errors: list[int] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: errors.append(0 if error is None else error.code()),
        )
    assert producer.flush(60) == 0
    if not any(errors):
        return None
    # All of the batch, with the same code; librdkafka does not show the records at fault.
    assert set(errors) == {ErrorCode.INVALID_RECORD}, errors
    return Refusal(-1, "")
