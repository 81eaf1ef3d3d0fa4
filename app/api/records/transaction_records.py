"""Records for several topics in one request: checked as a whole, then put into batches.

A record that is not valid refuses the request before anything is appended, and the problem names
the index of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Raw
from stele.wire.record_batch import HEADER_BYTES, Row

from ...broker.broker import Broker
from ...broker.producing.produce import Acks, Produced
from ...errors import AuthorizationError, InvalidRequest, SteleError
from ...storage.topic_partition import TopicPartition
from ...transactions.writes import RowBatch
from ...work_budget import RECORDS_PER_TURN, WorkBudget
from ..errors import HttpError, kind_of, problem_of
from .json_types import TransactionReceipt
from .large_records import parse_in_turns, to_record_in_turns
from .upload import Upload

_RECORDS_PER_TURN = 128
_ERRORS_MAX = 1000


class TransactionRecords:
    """The batches of a request, and the place of each of its records in them."""

    def __init__(self, broker: Broker, check_topic: Callable[[str], None]) -> None:
        self._broker = broker
        # Raises AuthorizationError.
        self._check_topic = check_topic
        self._topics: dict[str, Upload | SteleError] = {}
        self._open: dict[TopicPartition, int] = {}
        self._sizes: list[int] = []
        self._rows: list[tuple[TopicPartition, list[Row]]] = []
        # Of each record: its batch, and its index there.
        self._places: list[tuple[int, int]] = []

    @property
    def batches(self) -> list[RowBatch]:
        indexes: list[list[int]] = [[] for _ in self._rows]
        for index, (number, _) in enumerate(self._places):
            indexes[number].append(index)
        return [
            RowBatch(topic_partition=partition, rows=rows, indexes=numbers)
            for (partition, rows), numbers in zip(self._rows, indexes, strict=True)
        ]

    async def add_all(self, texts: Sequence[Raw], *, records_max: int) -> None:
        """Check and add records; topics that do not exist are created, unless auto-creation is off.

        Raises:
            HttpError: a record is not valid, or there are too many.
            AuthorizationError: the client may not write to one of the topics.
        """
        if len(texts) > records_max:
            raise HttpError(
                413,
                f"the request has {len(texts)} records, more than the limit of {records_max}; use a transaction "
                "over several requests (POST /v1/transactions/{transactional_id}/begin)",
                limit=records_max,
            )
        errors: list[tuple[int, SteleError]] = []
        turn = WorkBudget()
        for index, text in enumerate(texts):
            try:
                await self._add(index, text)
            except AuthorizationError:
                raise
            except SteleError as error:
                errors.append((index, error))
            await turn.spend(len(text), RECORDS_PER_TURN / _RECORDS_PER_TURN)
        if errors:
            raise _refusal(errors)

    async def _add(self, index: int, text: Raw) -> None:
        parsed, value = await parse_in_turns(text)
        name, record = parsed.topic, await to_record_in_turns(parsed, len(text), value)
        if name is None:
            raise InvalidRequest("the record has no topic; each record of a transaction names its topic")
        upload = await self._upload(name)
        partition = TopicPartition(name, upload.partition_of(record))
        size = upload.size_of(record)
        upload.check(record, index)
        number = self._open.get(partition)
        if number is None or self._sizes[number] + size > upload.batch_bytes_max:
            number = self._open[partition] = len(self._rows)
            self._rows.append((partition, []))
            self._sizes.append(HEADER_BYTES)
        timestamp_ms = self._broker.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        rows = self._rows[number][1]
        self._places.append((number, len(rows)))
        self._sizes[number] += size
        rows.append((timestamp_ms, record.key, record.value, record.headers))

    async def _upload(self, name: str) -> Upload:
        upload = self._topics.get(name)
        if upload is None:
            self._check_topic(name)
            try:
                topic = await self._broker.ensure_topic(name)
                if topic.config.storage == "memory":
                    raise InvalidRequest(
                        f"topic {name!r} is in memory, so it cannot be in a transaction; use a topic on disk"
                    )
                upload = Upload(self._broker, topic, acks=Acks.LEADER)
            except SteleError as error:
                upload = error
            self._topics[name] = upload
        if isinstance(upload, SteleError):
            raise upload
        return upload

    def receipts(self, produced: Sequence[Produced]) -> list[TransactionReceipt]:
        """Return the receipt of each record, in the order of the request."""
        receipts: list[TransactionReceipt] = []
        for number, position in self._places:
            receipt, (_, rows) = produced[number], self._rows[number]
            stamped_ms = receipt.log_append_time_ms
            receipts.append(
                {
                    "topic": receipt.topic,
                    "partition": receipt.partition,
                    "offset": receipt.base_offset + position,
                    "timestamp": stamped_ms if stamped_ms >= 0 else rows[position][0],
                }
            )
        return receipts


def _refusal(errors: Sequence[tuple[int, SteleError]]) -> HttpError:
    index, first = errors[0]
    documents = [
        {"index": index} | {name: document[name] for name in ("type", "detail", "kafka_code", "retriable")}
        for index, error in errors[:_ERRORS_MAX]
        for document in (problem_of(error),)
    ]
    status = kind_of(first).status
    return HttpError(
        status,
        f"nothing was written: record {index}: {first}",
        kafka_code=documents[0]["kafka_code"],
        retriable=documents[0]["retriable"],
        errors=documents,
    )
