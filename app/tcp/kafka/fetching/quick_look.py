"""The first look of a Fetch at the log, made at once and without a coroutine.

Most requests name a few partitions that exist, and their batches are in memory or they are at the end. Whatever is
anything else is left to the looks of ``reading``, and nothing has happened then.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import FetchableTopicResponse, FetchRequest, FetchTopic, PartitionData

from ....broker.reading.fetch import Fetched, PartitionFetch
from ....security.acl import READ_TOPIC
from ..context import Context
from .leader_epochs import NO_EPOCH, check_leader_epoch
from .looks import Look, check_is_same, may_read, partition_data, refused
from .old_clients import FIRST_WITH_BATCHES
from .read_replicas import rack_to_read_from
from .requests import FIRST_WITH_TOPIC_IDS, PARTITIONS_MAX, fetched_partition, isolation_of


def quick_look(context: Context, request: FetchRequest, max_bytes: int) -> QuickReading | None:
    """Read the partitions of ``request`` if that needs no wait, and none of them is to be refused."""
    broker, version, access = context.broker, context.version, context.access
    if version < FIRST_WITH_BATCHES or broker.cluster.is_shared:
        return None
    if request.rack_id and rack_to_read_from(context, request.rack_id) is not None:
        return None
    isolation = isolation_of(request)
    wanted: list[PartitionFetch] = []
    names: list[str] = []
    for topic in request.topics:
        name = topic.topic
        if version >= FIRST_WITH_TOPIC_IDS:
            known = broker.topic_by_id(topic.topic_id)
            if known is None:
                return None
            name = known.name
        if access is not None and not may_read(access, name):
            return None
        names.append(name)
        partitions = topic.partitions
        if partitions.__class__ is not list or not 0 < len(partitions) <= PARTITIONS_MAX - len(wanted):
            return None
        for partition in partitions:
            epoch = partition.current_leader_epoch
            if epoch != NO_EPOCH and check_leader_epoch(broker, name, partition.partition, epoch):
                return None
            bytes_max = partition.partition_max_bytes
            wanted.append(
                PartitionFetch(
                    topic=name,
                    partition=partition.partition,
                    offset=partition.fetch_offset,
                    max_bytes=bytes_max if bytes_max > 0 else 0,
                    isolation=isolation,
                )
            )
    if len(wanted) > 1:
        is_distinct = len({(one.topic, one.partition) for one in wanted}) == len(wanted)
        if not is_distinct or len(set(names)) < len(names):
            return None
    reads = broker.fetch_now(wanted, max_bytes=max_bytes) if wanted else None
    return None if reads is None else QuickReading(context, request.topics, names, wanted, reads)


class QuickReading:
    """A request without a session whose first look has been made.

    There is one read for each partition of ``topics``, which have these ``names``.
    """

    __slots__ = ("_context", "_look", "_names", "_topics", "reads", "wanted")

    def __init__(
        self,
        context: Context,
        topics: Sequence[FetchTopic],
        names: list[str],
        wanted: list[PartitionFetch],
        reads: list[Fetched],
    ) -> None:
        self._context = context
        self._topics = topics
        self._names = names
        self.wanted = wanted
        self.reads = reads
        self._look: Look | None = None

    async def look(self) -> Look:
        if self._look is None:
            self._look = Look(wanted=self.wanted)
        return self._look

    async def note(self, look: Look, reads: Sequence[Fetched]) -> None:
        """Do nothing."""

    def is_over(self, look: Look) -> bool:
        return False

    async def wait(self, look: Look, reads: Sequence[Fetched], *, min_bytes: int, timeout_ms: int) -> None:
        await self._context.broker.wait_for_more(
            self.wanted, reads, min_bytes=min_bytes, timeout_ms=timeout_ms
        )

    def responses(self) -> list[FetchableTopicResponse]:
        """Return the answers for ``reads``, if nothing can have happened since."""
        if len(self.wanted) == 1:
            (topic,), (name,), (read,) = self._topics, self._names, self.reads
            answers = [partition_data(read)]
            return [FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=answers)]
        responses: list[FetchableTopicResponse] = []
        end = 0
        for topic, name in zip(self._topics, self._names, strict=True):
            begin, end = end, end + len(topic.partitions)
            answers = list(map(partition_data, self.reads[begin:end]))
            responses.append(FetchableTopicResponse(topic=name, topic_id=topic.topic_id, partitions=answers))
        return responses

    def checked_responses(self) -> list[FetchableTopicResponse]:
        """Return the answers for ``reads`` after a wait."""
        responses = self.responses()
        context, access, number = self._context, self._context.access, 0
        is_by_id = context.version >= FIRST_WITH_TOPIC_IDS
        # A read from memory has found what has this name now.
        is_same = not is_by_id and self._look is not None and self._look.is_current
        for topic, response in zip(self._topics, responses, strict=True):
            is_unreadable = access is not None and not access.sees(READ_TOPIC, response.topic)
            answers = list[PartitionData](response.partitions)
            for index, partition in enumerate(topic.partitions):
                code = ErrorCode.NONE
                if is_unreadable:
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif (self.reads[number].batches or self.reads[number].error is not None) and not (
                    is_same and partition.current_leader_epoch == NO_EPOCH
                ):
                    asked = fetched_partition(topic, partition, response.topic, is_by_id=is_by_id)
                    code = check_is_same(context.broker, asked)
                if code:
                    answers[index] = refused(partition.partition, code)
                number += 1
            response.partitions = answers
        return responses
