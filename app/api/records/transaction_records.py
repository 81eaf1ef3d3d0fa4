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
from ...errors import AuthorizationError, InvalidRequest, SteleError, UnencodableValue
from ...storage.topic_partition import TopicPartition
from ...transactions.writes import RowBatch
from ...work_budget import RECORDS_PER_TURN, WorkBudget
from ..errors import HttpError, kind_of, problem_of, refused_records
from .encoding import Parsed, RecordEncoding
from .json_records import NewRecord
from .json_types import TransactionReceipt
from .large_records import parse_in_turns
from .upload import Upload

_RECORDS_PER_TURN = 128
_ERRORS_MAX = 1000


class TransactionRecords:
    """The batches of a request, and the place of each of its records in them."""

    def __init__(self, broker: Broker, check_topic: Callable[[str], None], encoding: RecordEncoding) -> None:
        self._broker = broker
        self._encoding = encoding
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
        for start in range(0, len(texts), _RECORDS_PER_TURN):
            # Of one topic each, in their order.
            runs: list[tuple[str | None, list[Parsed | SteleError]]] = []
            for text in texts[start : start + _RECORDS_PER_TURN]:
                name, parsed = await _parsed(text)
                if not runs or runs[-1][0] != name:
                    runs.append((name, []))
                runs[-1][1].append(parsed)
                await turn.spend(len(text), RECORDS_PER_TURN / _RECORDS_PER_TURN)
            index = start
            for name, run in runs:
                errors += await self._add_run(index, name, run)
                index += len(run)
        if errors:
            raise _refusal(errors)

    async def _add_run(
        self, first: int, name: str | None, run: Sequence[Parsed | SteleError]
    ) -> list[tuple[int, SteleError]]:
        """Add records of one topic, and return the errors of those that are not valid.

        Raises ``AuthorizationError``.
        """
        errors: list[tuple[int, SteleError]] = []
        try:
            upload = None if name is None else await self._upload(name)
        except AuthorizationError:
            raise
        except SteleError as error:
            return [
                (index, each if isinstance(each, SteleError) else error)
                for index, each in enumerate(run, first)
            ]
        if upload is None or name is None:
            reason = "the record has no topic; each record of a transaction names its topic"
            return [
                (index, each if isinstance(each, SteleError) else InvalidRequest(reason))
                for index, each in enumerate(run, first)
            ]
        await self._encoding.applies_to(upload.topic)
        for index, record in enumerate(await self._encoding.records(upload.topic, run, first), first):
            try:
                if isinstance(record, SteleError):
                    raise record
                self._add(index, name, upload, record)
            except SteleError as error:
                errors.append((index, error))
        return errors

    def _add(self, index: int, name: str, upload: Upload, record: NewRecord) -> None:
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


async def _parsed(text: Raw) -> tuple[str | None, Parsed | SteleError]:
    """Return the topic of a record, and the record parsed."""
    try:
        record, value = await parse_in_turns(text)
    except InvalidRequest as error:
        return None, error
    return record.topic, Parsed(record, len(text), value)


def _refusal(errors: Sequence[tuple[int, SteleError]]) -> HttpError:
    index, first = errors[0]
    names = ("type", "detail", "kafka_code", "retriable", "pointer")
    documents = [
        {"index": index} | {name: document[name] for name in names if name in document}
        for index, error in errors[:_ERRORS_MAX]
        for document in (problem_of(error),)
    ]
    if isinstance(first, UnencodableValue):
        return refused_records(f"nothing was written: {first}", documents)
    return HttpError(
        kind_of(first).status,
        f"nothing was written: record {index}: {first}",
        kafka_code=documents[0]["kafka_code"],
        retriable=documents[0]["retriable"],
        errors=documents,
    )
