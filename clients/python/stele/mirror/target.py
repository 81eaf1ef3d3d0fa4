"""The target of a mirror: the copies, and the groups, rules and quotas beside them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from ..async_client import AsyncClient
from ..config import broker_urls, http_url_of
from ..errors import SteleClientError, UnknownTopicError, UnsupportedOperationError
from ..operations import acls, mirrors, quotas
from ..operations.base import Operation
from ..operations.group_admin import DescribeGroup, ListGroups
from ..operations.mirrors import Copy
from ..operations.topics import HttpListener
from ..records import TopicPartition
from ..wire import messages as m
from ..wire import record_batch as rb
from ..wire.error_codes import ErrorCode
from ..wire.isolation_level import IsolationLevel
from ..wire.messages.mirrors import MirrorAppendResponse
from .errors import MirrorError, SourceError
from .positions import NOTHING, CopyState, Diverged, LeftOut, NotCopyable, Sample
from .source.reads import Commit, Committed, Entity, ReadGroups, SourceConfigValue

# The mirror that alone writes to a topic, and the id that the topic has at its source.
MIRROR = "stele.mirror"
SOURCE_ID = "stele.mirror.source.id"
_OFFSETS_PER_REQUEST = 500

R = TypeVar("R")


# Why the state of a copy is not known, or why it cannot go on.
NoState = SteleClientError | SourceError | MirrorError | Diverged | NotCopyable


class Target(Protocol):
    """What a mirror writes to. Any method may raise ``SourceError``, if the target is another cluster."""

    # Of which records it takes copies.
    isolation: IsolationLevel
    # Whether copies have the batches of the source as they are, and can be cut back.
    has_batches: bool
    # What to do about a copy that has diverged.
    advice: str

    async def close(self) -> None: ...

    async def describe(self, topic: str) -> Copy | None:
        """Return a topic; None if there is none."""
        ...

    def refusal(self, configs: Mapping[str, SourceConfigValue]) -> str:
        """Return why a topic of the source cannot be copied, by its configurations; empty if it can."""
        ...

    async def create(self, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None: ...

    async def alter(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> None: ...

    async def states(
        self, copies: Mapping[TopicPartition, bytes]
    ) -> Mapping[TopicPartition, CopyState | NoState]:
        """Return what copies have; they are named with the ids of their topics. Then they can be appended to."""
        ...

    def samples(self, partition: TopicPartition) -> Sequence[Sample]:
        """Return records of a copy to compare with the source, as of ``states``; none if epochs say enough."""
        ...

    def begun(self, partition: TopicPartition, copy: CopyState, position: int) -> tuple[CopyState, int]:
        """Return what a copy has that goes on at ``position``, and where the first batch may begin.

        Raises ``NotCopyable`` if it cannot go on there.
        """
        ...

    async def append(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        batches: bytes | bytearray | memoryview,
        *,
        expected_end: int,
        log_start: int,
        left_out: LeftOut,
    ) -> CopyState:
        """Append whole batches to a copy that ends at ``expected_end``; its log start moves up to ``log_start``.

        ``left_out`` counts for a target that takes only what consumers get.

        Raises:
            UnexpectedEndError: it ends elsewhere; nothing was stored.
            Diverged, NotCopyable: it cannot go on.
            SteleClientError: nothing was stored, or the outcome is unknown: ask for the state.
        """
        ...

    async def read(self, partition: TopicPartition, offset: int, *, bytes_max: int) -> rb.Buffer:
        """Return batches of a copy as they are stored: that with ``offset``, and others in ``bytes_max``.

        Raises:
            UnsupportedOperationError: the target has other batches (``has_batches``).
            SteleClientError
        """
        raise UnsupportedOperationError("the copies do not have the batches of their source")

    async def commit(self, group: str, offsets: Sequence[tuple[TopicPartition, Commit]]) -> None:
        """Commit offsets. Raises ``GroupError`` if the group has members."""
        ...

    async def consumed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the committed offsets of a group that has had members at the target, as far as that can be known.

        Raises ``SteleClientError``.
        """
        return {}


class SteleTarget(Target):
    """The broker that a mirror writes to, over the binary protocol; groups, rules and quotas go over HTTP."""

    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    has_batches: bool = True

    def __init__(self, url: str, *, is_shared: bool = False) -> None:
        """``is_shared``: copies are on shared storage.

        Raises ``ValueError`` for a URL that is not of the binary protocol.
        """
        if not url.startswith("stele"):
            raise ValueError("a mirror writes over the binary protocol; give a URL like stele://HOST:9009")
        self._url = url
        cut = "" if is_shared else "'stele mirror truncate' cuts the copy back to what both have, or "
        self.advice: str = f"{cut}delete the topic to copy it again; or promote it to keep what it has"
        self._client = AsyncClient(url)
        self._http: AsyncClient | None = None

    async def close(self) -> None:
        await self._client.close()
        if self._http is not None:
            await self._http.close()

    # ── copies ──

    async def describe(self, topic: str) -> Copy | None:
        try:
            return await self._client.call(mirrors.DescribeCopy(topic=topic))
        except UnknownTopicError:
            return None

    def refusal(self, configs: Mapping[str, SourceConfigValue]) -> str:
        return ""

    async def create(self, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        await self._client.create_topic(topic, partitions=partitions, configs=configs)

    async def alter(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> None:
        await self._client.alter_topic(topic, partitions=partitions, configs=configs or {})

    async def states(
        self, copies: Mapping[TopicPartition, bytes]
    ) -> Mapping[TopicPartition, CopyState | NoState]:
        states = await asyncio.gather(
            *(
                self.append(name, topic_id, b"", expected_end=-1, log_start=-1)
                for name, topic_id in copies.items()
            ),
            return_exceptions=True,
        )
        found: dict[TopicPartition, CopyState | NoState] = {}
        for name, state in zip(copies, states, strict=True):
            if not isinstance(state, CopyState | SteleClientError):
                raise state
            found[name] = state
        return found

    def samples(self, partition: TopicPartition) -> Sequence[Sample]:
        return ()

    def begun(self, partition: TopicPartition, copy: CopyState, position: int) -> tuple[CopyState, int]:
        return copy, copy.end

    async def append(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        batches: bytes | bytearray | memoryview,
        *,
        expected_end: int,
        log_start: int,
        left_out: LeftOut = NOTHING,
    ) -> CopyState:
        done: MirrorAppendResponse = await self._client.call(
            mirrors.MirrorAppend(
                topic=partition.topic,
                topic_id=topic_id,
                partition=partition.partition,
                expected_end=expected_end,
                log_start_offset=log_start,
                batches=batches,  # pyright: ignore[reportArgumentType] - any buffer can be written
            )
        )
        return CopyState(start=done.log_start_offset, end=done.log_end_offset, epoch=done.leader_epoch)

    async def read(self, partition: TopicPartition, offset: int, *, bytes_max: int) -> rb.Buffer:
        asked = m.FetchPartition(
            topic=partition.topic, partition=partition.partition, offset=offset, max_bytes=bytes_max
        )
        read = await self._client.call(mirrors.ReadCopy(partitions=[asked], max_bytes=bytes_max))
        if read.code:
            raise SteleClientError(f"{partition} cannot be read at offset {offset}: {read.message}")
        return read.batches

    # ── beside them, over HTTP ──

    async def commit(self, group: str, offsets: Sequence[tuple[TopicPartition, Commit]]) -> None:
        for start in range(0, len(offsets), _OFFSETS_PER_REQUEST):
            some = [
                (name, one.offset, one.metadata)
                for name, one in offsets[start : start + _OFFSETS_PER_REQUEST]
            ]
            await self._call(mirrors.SetOffsets(group=group, offsets=some))

    async def consumed(self, group: str) -> Mapping[TopicPartition, int]:
        try:
            described = await self._call(DescribeGroup(group=group))
        except SteleClientError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise
        if not described.generation:
            return {}
        return {
            TopicPartition(one.topic, one.partition): one.committed
            for one in described.partitions
            if one.committed is not None
        }

    async def read_groups(self, pattern: re.Pattern[str]) -> ReadGroups:
        """Read the groups of all brokers of this cluster: the Kafka listener of each has only its own."""
        found: dict[str, Committed] = {}
        shares: set[str] = set()
        after: str | None = ""
        while after is not None:
            listed, after = await self._call(ListGroups(after=after))
            for name in [name for name, _ in listed if pattern.fullmatch(name)]:
                try:
                    offsets = await self._call(mirrors.GroupOffsets(group=name))
                except SteleClientError as error:
                    if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                        raise
                    continue
                if offsets is None:
                    shares.add(name)
                else:
                    found[name] = {one: Commit(*commit) for one, commit in offsets.items()}
        return ReadGroups(found, shares)

    async def add_acls(self, rules: Sequence[acls.AclDocument]) -> None:
        await self._call(acls.AddAcls(acls=rules))

    async def remove_acl(self, rule: acls.AclDocument) -> None:
        await self._call(acls.RemoveAcls(selection=rule))

    async def change_quotas(self, entity: Entity, values: Mapping[str, float | None]) -> None:
        await self._call(quotas.ChangeQuotas(entity=dict(entity), values=values))

    async def _call(self, operation: Operation[R]) -> R:
        if self._http is None:
            self._http = AsyncClient(await self._http_url())
        try:
            return await self._http.call(operation)
        except SteleClientError as error:
            if error.retriable:
                # Another broker may have another port.
                http, self._http = self._http, None
                await http.close()
            raise

    async def _http_url(self) -> str:
        listener = await self._client.call(HttpListener())
        if not listener.port:
            raise UnsupportedOperationError(
                "the target has no HTTP listener, which committed offsets, rules and quotas need"
            )
        return http_url_of(broker_urls(self._url)[0], listener.port, has_tls=listener.has_tls)
