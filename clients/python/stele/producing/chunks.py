"""Idempotent batches that the caller numbers, in order, retried until stored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ..client import Client
from ..errors import ProducerStateError, SteleClientError, UnsupportedOperationError
from ..operations.base import HttpAnswer, HttpRequest, Operation, expect
from ..operations.produce import Produce
from ..records import OutgoingRecord
from ..transport.base import retry_pause_s
from ..transport.tcp import TcpTransport
from ..wire import messages as m
from ..wire.compression import Compression
from ..wire.error_codes import ErrorCode
from ..wire.record_batch import NO_PRODUCER_ID, BatchBuilder, Row, build_rows

# Below the default limit of 1 MiB per batch, with room for the batch header.
CHUNK_BYTES = 900 * 1024
HEADER_ROOM_BYTES = 4096
# Per partition: fewer than the batches that the broker remembers of a producer, so that any may be sent again.
CHUNKS_AHEAD = 4
# Of all partitions; it bounds what waits.
_BYTES_AHEAD = 4 * CHUNK_BYTES
SEQUENCE_MODULUS = 2**31


class ProduceChunk(Operation[None]):
    """Produces one idempotent batch, without receipts.

    With a ``transactional_id`` it belongs to the transaction of that id.
    """

    is_repeatable = True
    topic: str
    partition: int
    rows: list[Row]
    acks: int
    timeout_ms: int
    compression: Compression
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional_id: str | None = None

    def to_frame(self) -> m.Request:
        batch = build_rows(
            self.rows,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            is_transactional=self.transactional_id is not None,
        )
        if self.compression is not Compression.NONE:
            batch = self._compressed()
        if self.transactional_id is not None:
            return m.TransactionalProduceRequest(
                topic=self.topic,
                partition=self.partition,
                acks=self.acks,
                timeout_ms=self.timeout_ms,
                batches=batch,
                transactional_id=self.transactional_id,
            )
        return m.ProduceBatchRequest(
            topic=self.topic,
            partition=self.partition,
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            batches=batch,
        )

    def _compressed(self) -> bytearray:
        builder = BatchBuilder(
            compression=self.compression,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            is_transactional=self.transactional_id is not None,
        )
        for timestamp_ms, key, value, headers in self.rows:
            builder.append(timestamp_ms=timestamp_ms, key=key, value=value, headers=headers)
        return builder.build()

    def from_frame(self, response: m.Response) -> None:
        expect(response, m.ProduceBatchResponse)

    def _produce(self) -> Produce:
        return Produce(
            topic=self.topic,
            partition=self.partition,
            records=[OutgoingRecord(*row) for row in self.rows],
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )

    def to_http(self) -> HttpRequest:
        if self.transactional_id is not None:
            raise UnsupportedOperationError(
                "transactional batches are written over the binary protocol only; use a stele:// URL"
            )
        return self._produce().to_http()

    def from_http(self, answer: HttpAnswer) -> None:
        for outcome in self._produce().from_http(answer):
            if isinstance(outcome, SteleClientError):
                raise outcome


def row_room(configs: Mapping[str, str]) -> int:
    """Return how many bytes of rows a batch of a topic may have."""
    return int(configs.get("max.message.bytes", CHUNK_BYTES + HEADER_ROOM_BYTES)) - HEADER_ROOM_BYTES


@dataclass(slots=True)
class OpenChunk:
    """The rows of a partition that are in no chunk yet; ``next_sequence`` is that of the first."""

    next_sequence: int = 0
    rows: list[Row] = field(default_factory=list[Row])
    size: int = 0


class ChunkSender:
    """Sends chunks until they are stored.

    ``pause`` waits this many seconds between attempts, and may raise to give up. ``producer``,
    its id and epoch, and ``transactional_id`` are those of the chunks that ``close`` makes.
    """

    def __init__(
        self,
        client: Client,
        *,
        patience_s: float,
        pause: Callable[[float], None] = time.sleep,
        acks: int = m.ACKS_ALL,
        compression: Compression = Compression.NONE,
    ) -> None:
        self._client = client
        self._patience_s = patience_s
        self._pause = pause
        self._acks = acks
        self._compression = compression
        self._ready: list[ProduceChunk] = []
        # Chunks that are sent, and what waits for their outcomes.
        self._sent: list[ProduceChunk] = []
        self._outcomes: Callable[[], list[SteleClientError | None]] = list
        self._ahead: Counter[tuple[str, int]] = Counter()
        self._bytes = 0
        self.producer: tuple[int, int] = (NO_PRODUCER_ID, -1)
        self.transactional_id: str | None = None

    def close(self, topic: str, partition: int, open_chunk: OpenChunk) -> None:
        """Add the rows of a partition as a chunk, to be sent once the sender ``is_full``."""
        producer_id, producer_epoch = self.producer
        rows, sequence = open_chunk.rows, open_chunk.next_sequence
        self._bytes += open_chunk.size
        self.put(
            ProduceChunk(
                topic=topic,
                partition=partition,
                rows=rows,
                acks=self._acks,
                timeout_ms=int(self._client.config.timeout_s * 1000),
                compression=self._compression,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=sequence,
                transactional_id=self.transactional_id,
            )
        )
        open_chunk.next_sequence = (sequence + len(rows)) % SEQUENCE_MODULUS
        open_chunk.rows, open_chunk.size = [], 0

    def put(self, chunk: ProduceChunk) -> None:
        """Add a chunk, to be sent once the sender ``is_full``."""
        self._ready.append(chunk)
        self._ahead[chunk.topic, chunk.partition] += 1

    @property
    def is_full(self) -> bool:
        return self._bytes >= _BYTES_AHEAD or max(self._ahead.values(), default=0) >= CHUNKS_AHEAD

    @property
    def is_sending(self) -> bool:
        """Whether chunks that ``start`` has sent may not be stored yet."""
        return bool(self._sent)

    def send(self) -> None:
        """Send all waiting chunks in order; retry while the broker is down.

        Raises:
            SteleClientError: a chunk was rejected, or not stored within ``patience_s``.
        """
        self.start()
        self._finish()

    def start(self) -> None:
        """Send all waiting chunks once those before them are stored; ``send`` waits until they are stored, too.

        Raises as ``send`` does, for chunks that were sent before.
        """
        self._finish()
        chunks, self._ready = self._ready, []
        self._ahead.clear()
        self._bytes = 0
        self._sent = chunks
        transport = self._client.transport
        if chunks and isinstance(transport, TcpTransport):
            self._outcomes = transport.start_all(chunks, timeout_s=self._client.config.timeout_s)
        else:
            self._outcomes = partial(self._call, chunks)

    def _call(self, chunks: list[ProduceChunk]) -> list[SteleClientError | None]:
        return self._client.transport.call_all(chunks, timeout_s=self._client.config.timeout_s)

    def _finish(self) -> None:
        """Wait until all chunks that were sent are stored."""
        give_up_s = time.monotonic() + self._patience_s
        failures = 0
        while self._sent:
            outcomes = self._outcomes()
            # Outcomes come once: after an error, the next call sends again what may not be stored.
            self._outcomes = partial(self._call, self._sent)
            left: list[ProduceChunk] = []
            cause: SteleClientError | None = None
            failed: set[tuple[str, int]] = set()
            for chunk, outcome in zip(self._sent, outcomes, strict=True):
                partition = chunk.topic, chunk.partition
                # A duplicate is stored; its offset is not needed.
                if outcome is None or outcome.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                    continue
                follows_failure = isinstance(outcome, ProducerStateError) and partition in failed
                if not outcome.retriable and not follows_failure:
                    raise outcome
                failed.add(partition)
                left.append(chunk)
                cause = cause or outcome
            self._sent, self._outcomes = left, partial(self._call, left)
            if cause is not None:
                pause_s = retry_pause_s(failures)
                failures += 1
                if time.monotonic() + pause_s >= give_up_s:
                    raise cause
                self._pause(pause_s)
