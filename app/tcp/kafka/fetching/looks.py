"""Check the partitions of a Fetch, and make the answers for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from stele.wire.error_codes import ErrorCode
from stele.wire.isolation_level import IsolationLevel
from stele.wire.kafka.fetch import AbortedTransaction, FetchableTopicResponse, PartitionData

from ....broker.broker import Broker
from ....broker.reading.fetch import Fetched, PartitionFetch
from ....security.acl import READ_TOPIC
from ....security.authorizer import Access
from ....work_budget import PARTITIONS_PER_TURN, Pace, Steps, pause
from ...errors import error_code_of
from ..context import Context
from ..sessions.fetch_sessions import FetchedPartition, FetchSession
from .leader_epochs import check_leader_epoch
from .read_replicas import read_elsewhere

_NO_OFFSET = -1
# To note one and to add it to the response takes about 2 µs.
_PIECES_OF_ANSWER = 2


@dataclass(slots=True)
class Answer:
    """The response for one partition."""

    partition: FetchedPartition
    data: PartitionData
    # It sends the client to another broker.
    is_elsewhere: bool = False

    @property
    def records_size(self) -> int:
        return len(self.data.records or b"")

    def note(self) -> None:
        """Note in the partition that its session begins with this answer."""
        self.partition.note_answer(
            has_records=self.records_size > 0 or self.is_elsewhere,
            is_error=self.data.error_code != ErrorCode.NONE,
            high_watermark=self.data.high_watermark,
            log_start_offset=self.data.log_start_offset,
        )

    def settle(self, session: FetchSession) -> bool:
        """Note this answer in ``session``; return whether the response must have it."""
        return session.settle(
            self.partition,
            has_records=self.records_size > 0 or self.is_elsewhere,
            is_error=self.data.error_code != ErrorCode.NONE,
            high_watermark=self.data.high_watermark,
            log_start_offset=self.data.log_start_offset,
        )

    def refuse(self, code: ErrorCode) -> None:
        self.data = refused(self.partition.index, code)


@dataclass(slots=True)
class Look:
    """What is to be read of some partitions, and the answers for those that cannot be read.

    ``is_urgent``: one of these answers must be sent at once, without a long poll. ``missing`` are partitions that do
    not exist, or that the client may not read.
    """

    readable: list[FetchedPartition] = field(default_factory=list[FetchedPartition])
    wanted: list[PartitionFetch] = field(default_factory=list[PartitionFetch])
    refused: list[Answer] = field(default_factory=list[Answer])
    missing: set[FetchedPartition] = field(default_factory=set[FetchedPartition])
    is_urgent: bool = False
    # Whether anything may have changed since the partitions were checked.
    is_stale: bool = False
    # Whether nothing can have changed since they were read.
    is_current: bool = False

    def want(self, partition: FetchedPartition, isolation: IsolationLevel) -> None:
        self.readable.append(partition)
        self.wanted.append(
            PartitionFetch(
                topic=partition.topic,
                partition=partition.index,
                offset=partition.offset,
                max_bytes=partition.max_bytes,
                isolation=isolation,
            )
        )

    async def answers(self, broker: Broker, reads: Sequence[Fetched]) -> list[Answer]:
        """Return the answers that were read, in their order, then the others, as in Kafka.

        During the read, or the wait before it, a topic may have been made anew, or its log have become that of another
        history: records of these are not those that the client asked for, nor is an offset beyond them out of range.
        """
        answers: list[Answer] = []
        for partition, read in zip(self.readable, reads, strict=True):
            if len(answers) % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await pause()
                self.is_stale = True
            is_doubtful = self.is_stale and (read.batches or read.error is not None)
            code = check_is_same(broker, partition) if is_doubtful else ErrorCode.NONE
            data = refused(partition.index, code) if code else partition_data(read)
            answers.append(Answer(partition, data))
        return answers + self.refused if self.refused else answers


async def look_at(
    context: Context,
    partitions: Sequence[FetchedPartition],
    isolation: IsolationLevel,
    *,
    missing: Collection[FetchedPartition] | None,
    rack: str | None,
) -> Look:
    """Check ``partitions``.

    Those that do not exist are urgent unless they are in ``missing``, or that is None. Those that exist are to be read
    from a broker of ``rack``, if it is given.
    """
    look, broker = Look(), context.broker
    for number, partition in enumerate(partitions, 1):
        code = _check_readable(context, partition)
        if code:
            look.missing.add(partition)
            is_urgent = missing is not None and partition not in missing
        else:
            code = check_leader_epoch(broker, partition.topic, partition.index, partition.leader_epoch)
            is_urgent = True
        if code:
            look.refused.append(Answer(partition, refused(partition.index, code)))
            look.is_urgent = look.is_urgent or is_urgent
        elif rack is not None and (elsewhere := read_elsewhere(context, partition, rack)) is not None:
            look.refused.append(Answer(partition, elsewhere, is_elsewhere=True))
            look.is_urgent = True
        else:
            look.want(partition, isolation)
        if number % PARTITIONS_PER_TURN == 0:
            await pause()
            look.is_stale = True
    return look


def readable(context: Context, look: Look, answers: Iterable[Answer]) -> Iterable[Answer]:
    """Return the answers, of which those are refused that the client may no longer read.

    The rules may have changed since the partitions were checked.
    """
    access = context.access
    if access is None or not look.is_stale:
        return answers

    def checked(answer: Answer) -> Answer:
        topic = answer.partition.topic
        if topic and not access.sees(READ_TOPIC, topic):
            answer.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return answer

    return map(checked, answers)


def grouped(
    answers: Iterable[Answer], is_shown: Callable[[Answer], bool] | None = None
) -> Steps[list[FetchableTopicResponse]]:
    """Group answers by topic, in their order; those that are shown.

    A topic comes twice if partitions of another stand between its own.
    """
    responses: list[FetchableTopicResponse] = []
    partitions: list[PartitionData] = []
    topic, topic_id = "", b""
    pace = Pace()
    for answer in answers:
        if pace.is_due(_PIECES_OF_ANSWER):
            yield
        if is_shown is not None and not is_shown(answer):
            continue
        partition = answer.partition
        if not responses or partition.topic_id != topic_id or partition.topic != topic:
            topic, topic_id, partitions = partition.topic, partition.topic_id, []
            responses.append(FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions))
        partitions.append(answer.data)
    return responses


def may_read(access: Access, topic: str) -> bool:
    return topic == access.read_last or access.may_read(topic)


def _check_readable(context: Context, partition: FetchedPartition) -> ErrorCode:
    access, topic = context.access, partition.topic
    if access is not None and topic and not may_read(access, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return _check_exists(context.broker, partition)


def check_is_same(broker: Broker, partition: FetchedPartition) -> ErrorCode:
    """Check whether what exists is what the client asked for."""
    return _check_exists(broker, partition) or check_leader_epoch(
        broker, partition.topic, partition.index, partition.leader_epoch
    )


def _check_exists(broker: Broker, partition: FetchedPartition) -> ErrorCode:
    if partition.is_by_id:
        topic = broker.topic_by_id(partition.topic_id)
        if topic is None:
            if not partition.topic:
                return ErrorCode.UNKNOWN_TOPIC_ID
            # The session knew the topic; one with its name is a new topic.
            is_other = broker.has_topic(partition.topic)
            return ErrorCode.INCONSISTENT_TOPIC_ID if is_other else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif broker.has_topic(partition.topic):
        topic = broker.readable_topic(partition.topic)
    else:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    exists = 0 <= partition.index < topic.partitions
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def refused(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=_NO_OFFSET,
        aborted_transactions=None,
        records=b"",
    )


def partition_data(read: Fetched) -> PartitionData:
    if read.error is not None:
        return refused(read.partition, error_code_of(read.error))
    return PartitionData(
        partition_index=read.partition,
        error_code=ErrorCode.NONE,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=_aborted(read) if read.aborted else () if read.aborted is not None else None,
        records=read.batches,
    )


def _aborted(read: Fetched) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in read.aborted or ()
    ]
