"""The target of a mirror: the copies, and the groups, rules and quotas beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from ..async_client import AsyncClient
from ..config import broker_urls, http_url_of
from ..errors import SteleClientError, UnknownTopicError, UnsupportedOperationError
from ..operations import acls, mirrors, quotas
from ..operations.base import Operation
from ..operations.group_admin import DescribeGroup
from ..operations.mirrors import Copy
from ..operations.topics import HttpListener
from ..records import TopicPartition
from ..wire.error_codes import ErrorCode
from ..wire.messages.mirrors import MirrorAppendResponse
from .positions import CopyState
from .source.reads import Commit, Entity

# The mirror that alone writes to a topic, and the id that the topic has at its source.
MIRROR = "stele.mirror"
SOURCE_ID = "stele.mirror.source.id"
_OFFSETS_PER_REQUEST = 500

R = TypeVar("R")


class Target:
    """The broker that a mirror writes to, over the binary protocol; groups, rules and quotas go over HTTP."""

    def __init__(self, url: str) -> None:
        """Raises ``ValueError`` for a URL that is not of the binary protocol."""
        if not url.startswith("stele"):
            raise ValueError("a mirror writes over the binary protocol; give a URL like stele://HOST:9009")
        self._url = url
        self._client = AsyncClient(url)
        self._http: AsyncClient | None = None

    async def close(self) -> None:
        await self._client.close()
        if self._http is not None:
            await self._http.close()

    # ── copies ──

    async def describe(self, topic: str) -> Copy | None:
        """Return a topic; None if there is none."""
        try:
            return await self._client.call(mirrors.DescribeCopy(topic=topic))
        except UnknownTopicError:
            return None

    async def create(self, topic: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        await self._client.create_topic(topic, partitions=partitions, configs=configs)

    async def alter(
        self, topic: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> None:
        await self._client.alter_topic(topic, partitions=partitions, configs=configs or {})

    async def state(self, partition: TopicPartition, topic_id: bytes) -> CopyState:
        """Return what a copy has."""
        return await self.append(partition, topic_id, b"", expected_end=-1, log_start=-1)

    async def append(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        batches: bytes | bytearray | memoryview,
        *,
        expected_end: int,
        log_start: int,
    ) -> CopyState:
        """Append whole batches to a copy that ends at ``expected_end``; its log start moves up to ``log_start``.

        Raises:
            UnexpectedEndError: it ends elsewhere; nothing was stored.
            SteleClientError: nothing was stored, or the outcome is unknown: ask for the state.
        """
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

    # ── beside them, over HTTP ──

    async def commit(self, group: str, offsets: Sequence[tuple[TopicPartition, Commit]]) -> None:
        """Commit offsets. Raises ``GroupError`` if the group has members."""
        for start in range(0, len(offsets), _OFFSETS_PER_REQUEST):
            some = [
                (name, one.offset, one.metadata)
                for name, one in offsets[start : start + _OFFSETS_PER_REQUEST]
            ]
            await self._call(mirrors.SetOffsets(group=group, offsets=some))

    async def consumed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a group that has had members here; nothing for one that only a mirror wrote."""
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
