"""Runs a process for each mirror, and carries out what operators ask of mirrors.

The process (``stele mirror run``) reads the source and appends through the binary listener, where ``Copies`` takes what it
brings. A mirror keeps nothing else: its position in each partition is where the copy ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client.registry import Collector

from ..broker.broker import Broker
from ..broker.mirrors import MirrorDefinition
from ..broker.producing.copies import CutCopy, EndedTransaction
from ..errors import InvalidRequest
from ..groups.services import GroupServices
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from ..supervised_process import SupervisedProcess
from .metrics import MirrorCollector


class Mirrors:
    """All mirrors of one broker."""

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        groups: GroupServices,
        broker_url: str,
        api_key: str = "",
    ) -> None:
        """``api_key`` logs the processes in to the broker; empty without logins."""
        self._settings = settings
        self._broker = broker
        self._groups = groups
        self._url = broker_url
        self._api_key = api_key
        self._processes: dict[str, SupervisedProcess] = {}
        self._changes = asyncio.Lock()
        self._has_started = False

    @property
    def collector(self) -> Collector:
        return MirrorCollector(self.list)

    async def open(self) -> None:
        """Load the definitions; call this before the listeners are open."""
        await self._broker.mirrors.open()

    def start(self) -> None:
        """Start all mirrors that are not paused; call this once the listeners are open."""
        self._has_started = True
        for definition in self._broker.mirrors.all():
            self._begin(definition)

    async def close(self) -> None:
        """Let the processes finish what they have begun; kill them after a timeout."""
        self._has_started = False
        async with self._changes:
            await asyncio.gather(*(process.close() for process in self._processes.values()))

    def _begin(self, definition: MirrorDefinition) -> None:
        if definition.is_paused or not self._has_started:
            return
        process = self._processes[definition.name] = SupervisedProcess(
            f"mirror {definition.name!r}",
            ("mirror", "run", "--supervised"),
            partial(self._variables, definition),
            status={"name": definition.name, "state": "starting"},
            good_states=("copying", "level"),
            shutdown_timeout_ms=self._settings.shutdown_timeout_ms,
        )
        process.start()

    async def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            await process.close()

    def _variables(self, definition: MirrorDefinition) -> dict[str, str]:
        given = {
            "STELE_MIRROR_DEFINITION": json.dumps(definition.as_document()),
            "STELE_MIRROR_BROKER": self._url,
            "STELE_MIRROR_SECRETS_DIR": str(self._settings.mirror_secrets_dir or ""),
        }
        return {**given, **({"STELE_API_KEY": self._api_key} if self._api_key else {})}

    # ── what operators see and do ──

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Return the status of each mirror, by name."""
        return [self._shown(definition) for definition in self._broker.mirrors.all()]

    def get(self, name: str) -> Mapping[str, Any]:
        """Return the status of a mirror. Raises ``UnknownMirror``."""
        return self._shown(self._broker.mirrors.get(name))

    def _shown(self, definition: MirrorDefinition) -> Mapping[str, Any]:
        process = self._processes.get(definition.name)
        if process is None:
            status: Mapping[str, Any] = {"state": "paused" if definition.is_paused else "starting"}
            return {**status, "restarts": 0, "definition": definition}
        return {**process.status, "restarts": process.restarts, "definition": definition}

    async def put(self, definition: MirrorDefinition) -> None:
        """Make a mirror, or change one; it runs with the new definition when this returns.

        Raises ``InvalidRequest``, and as the catalog does: then it goes on as it was.
        """
        if self._broker.cluster.is_shared:
            raise InvalidRequest(
                "brokers with shared storage take no copies yet; mirror to a broker of its own"
            )
        async with self._changes:
            await self._broker.mirrors.put(definition)
            await self._end(definition.name)
            self._begin(definition)

    async def delete(self, name: str) -> None:
        """Forget a mirror; its copies stay copies, which another mirror of this name goes on with.

        Raises ``UnknownMirror``, and as the catalog does.
        """
        async with self._changes:
            await self._broker.mirrors.delete(name)
            await self._end(name)

    async def promote(
        self, name: str, topic_name: str | None = None
    ) -> Sequence[tuple[str, list[EndedTransaction]]]:
        """Make an ordinary topic of one copy of a mirror, or of all: then the mirror is forgotten.

        Returns the topics, with the transactions that were open and are aborted.

        Raises:
            UnknownMirror: there is none.
            UnknownTopic, InvalidRequest: it has no such copy.
            StorageError, CatalogFailed: topics may have been promoted; it may be called again.
        """
        async with self._changes:
            definition = self._broker.mirrors.get(name)
            names = [topic.name for topic in self._broker.topics() if topic.config.mirror == name]
            if topic_name is not None:
                if topic_name not in names:
                    self._broker.topic(topic_name)
                    raise InvalidRequest(f"topic {topic_name!r} is no copy of mirror {name!r}")
                names = [topic_name]
            await self._end(name)
            try:
                promoted = [(one, await self._broker.copies.promote(one)) for one in names]
                if topic_name is None:
                    await self._broker.mirrors.delete(name)
            finally:
                if any(known.name == name for known in self._broker.mirrors.all()):
                    self._begin(definition)
            return promoted

    async def truncate(self, name: str, topic_name: str | None = None) -> Sequence[CutCopy]:
        """Cut copies that have diverged back to what their source has, too; the mirror goes on from there.

        Of one topic, or of all. Where they begin to differ is what the process of the mirror has found.

        Raises:
            UnknownMirror, UnknownTopic: there is none.
            InvalidRequest: it is not known yet where they begin to differ, or the storage is shared.
            StorageError, GroupStoreFailed: some may have been cut; it may be called again.
        """
        if self._broker.cluster.is_shared:
            raise InvalidRequest(
                "copies in shared storage cannot be cut back yet; delete the topic, and the mirror copies it again"
            )
        async with self._changes:
            definition = self._broker.mirrors.get(name)
            if topic_name is not None:
                self._broker.topic(topic_name)
            ends = {
                one: end
                for one, end in self._diverged(name)
                if topic_name in (None, one.topic) and self._broker.topic(one.topic).config.mirror == name
            }
            known = {one: end for one, end in ends.items() if end is not None}
            if ends and not known:
                raise InvalidRequest(
                    f"it is not known yet where the copies of mirror {name!r} and their source begin to differ; try again "
                    "once the source answers"
                )
            if not known:
                return []
            await self._end(name)
            try:
                return [await self._cut(one, end) for one, end in known.items()]
            finally:
                self._begin(definition)

    def _diverged(self, name: str) -> Iterator[tuple[TopicPartition, int | None]]:
        """Yield the partitions that have, and up to where they and the source are the same."""
        process = self._processes.get(name)
        for topic in () if process is None else process.status.get("topics", ()):
            for one in topic["partitions"]:
                if one["state"] == "diverged":
                    yield TopicPartition(topic["topic"], one["partition"]), one.get("common_end")

    async def _cut(self, name: TopicPartition, end_offset: int) -> CutCopy:
        before = self._broker.log_state(*name).log_end_offset
        # Also before: a crash in between leaves no commit that later records would be skipped for.
        groups = await self._move_commits(name, end_offset)
        after = await self._broker.copies.cut(name, end_offset)
        groups |= await self._move_commits(name, after)
        return CutCopy(topic_partition=name, before=before, after=after, groups=sorted(groups))

    async def _move_commits(self, name: TopicPartition, end_offset: int) -> set[str]:
        return {
            group
            for part in self._groups.all()
            for group in await part.coordinator.cut_offsets(*name, end_offset)
        }
