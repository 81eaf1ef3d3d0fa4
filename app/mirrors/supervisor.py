"""Runs a process for each mirror, and carries out what operators ask of mirrors.

The process (``stele mirror run``) reads the source and appends through the binary listener, where ``Copies`` takes what it
brings; an outward one reads from the Kafka listener and appends to another cluster. A mirror keeps nothing else: its
position in each partition is where the copy ends. In a cluster, the broker with the lease runs the processes, and the
others forward requests about mirrors to it; two processes at once, when a broker was paused, do no harm, because each
append says where it expects the end of the copy.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.registry import Collector

from ..broker.broker import Broker
from ..broker.mirrors import LEASE, MirrorDefinition
from ..broker.producing.copies import CutCopy, EndedTransaction
from ..cluster.database import ChangeKind
from ..errors import InvalidRequest
from ..groups.services import GroupServices
from ..settings import Settings
from ..storage.topic_partition import TopicPartition
from ..supervised_process import SupervisedProcess
from .metrics import MirrorCollector

logger = logging.getLogger(__name__)

# As ``stele.mirror.run`` has them: what it is told before its copies are promoted, and how long that may take it.
_FINISH = b"finish\n"
_FINISH_MS = 25_000
# In which the other brokers of a cluster hear that a topic is no copy any more.
_HEARD_S = 0.5


@dataclass(frozen=True, slots=True)
class _Running:
    definition: MirrorDefinition
    process: SupervisedProcess


class KafkaAccess(NamedTuple):
    """The Kafka listener of this broker: ``HOST:PORT``, and the properties of connections to it."""

    server: str
    properties: Mapping[str, str]


class Mirrors:
    """All mirrors of one broker. With several brokers it implements ``LeaseWork``, for ``lease``."""

    lease = LEASE
    is_able = True

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        groups: GroupServices,
        broker_url: str,
        api_key: str = "",
        *,
        kafka: KafkaAccess | None = None,
    ) -> None:
        """``api_key`` logs the processes in to the broker; empty without logins. Outward mirrors need ``kafka``."""
        self._settings = settings
        self._broker = broker
        self._groups = groups
        self._url = broker_url
        self._api_key = api_key
        self._kafka = kafka or KafkaAccess("", {})
        self._running: dict[str, _Running] = {}
        self._changes = asyncio.Lock()
        # Whether the processes run here.
        self._has_started = False
        self._is_held: Callable[[], bool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def collector(self) -> Collector:
        # The others of a cluster know nothing of the processes.
        return MirrorCollector(lambda: self.list() if self._has_started else ())

    async def open(self) -> None:
        """Load the definitions; call this before the listeners are open."""
        await self._broker.mirrors.open()
        self._broker.cluster.observe(ChangeKind.CONFIGS, self._changed)

    async def _changed(self) -> None:
        """Take over what another broker has changed."""
        await self._broker.mirrors.open()
        # Not here: the look at the cluster that calls this must not wait for processes that end.
        task = asyncio.create_task(self._reconcile())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reconcile(self) -> None:
        """Run what is defined, and nothing else."""
        async with self._changes:
            wanted = {known.name: known for known in self._broker.mirrors.all() if not known.is_paused}
            for name, running in list(self._running.items()):
                if wanted.get(name) != running.definition:
                    await self._end(name)
            for name, definition in wanted.items():
                if name not in self._running:
                    self._begin(definition)

    def start(self) -> None:
        """Start all mirrors that are not paused; call this once the listeners are open."""
        self._has_started = True
        for definition in self._broker.mirrors.all():
            self._begin(definition)

    def run_by_lease(self, is_held: Callable[[], bool]) -> None:
        """Run the mirrors between ``begin`` and ``end``, not from ``start`` on.

        ``is_held`` says whether this broker certainly has the lease.
        """
        self._is_held = is_held

    async def begin(self, epoch: int) -> None:
        """Start the mirrors, because this broker has the lease."""
        logger.info("running the mirrors, epoch %d of the lease %s", epoch, LEASE)
        self._has_started = True
        await self._reconcile()

    async def end(self) -> None:
        """Kill the mirrors, because the lease is lost or about to be given back: another broker goes on at once."""
        self._has_started = False
        ending, self._running = list(self._running.values()), {}
        await asyncio.gather(*(running.process.kill() for running in ending))

    async def close(self) -> None:
        """Let the processes finish what they have begun; kill them after a timeout."""
        self._has_started = False
        async with self._changes:
            await asyncio.gather(*(running.process.close() for running in self._running.values()))

    def _begin(self, definition: MirrorDefinition) -> None:
        if definition.is_paused or not self._has_started:
            return
        process = SupervisedProcess(
            f"mirror {definition.name!r}",
            ("mirror", "run", "--supervised"),
            partial(self._variables, definition),
            api_key=self._api_key,
            status={"name": definition.name, "state": "starting"},
            good_states=("copying", "level"),
            shutdown_timeout_ms=self._settings.shutdown_timeout_ms,
        )
        if self._is_held is not None:
            process.beat(self._is_held, self._settings.broker_session_timeout_ms / 1000)
        self._running[definition.name] = _Running(definition, process)
        process.start()

    async def _end(self, name: str) -> None:
        running = self._running.pop(name, None)
        if running is not None:
            await running.process.close()

    async def _finish(self, definition: MirrorDefinition) -> str:
        """End a process once it has copied what the source has by now; return why it may not have."""
        running = self._running.pop(definition.name, None)
        if running is None:
            return "the mirror is paused" if definition.is_paused else "the mirror has not been started yet"
        await running.process.close(last_words=_FINISH, more_ms=_FINISH_MS)
        status = running.process.status
        # A process that is not there, or was killed, has not said it.
        why = status.get("last_error") or "it took too long"
        return status.get("unfinished", f"the process of the mirror did not finish: {why}")

    def _variables(self, definition: MirrorDefinition) -> dict[str, str]:
        given = {
            "STELE_MIRROR_DEFINITION": json.dumps(definition.as_document()),
            "STELE_MIRROR_SECRETS_DIR": str(self._settings.mirror_secrets_dir or ""),
        }
        if definition.is_outward:
            return {
                **given,
                "STELE_MIRROR_BROKER": self._kafka.server,
                "STELE_MIRROR_BROKER_CONFIG": json.dumps(dict(self._kafka.properties)),
                "STELE_MIRROR_BROKER_URL": self._url,
            }
        return {**given, "STELE_MIRROR_BROKER": self._url}

    # ── what operators see and do ──

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Return the status of each mirror, by name."""
        return [self._shown(definition) for definition in self._broker.mirrors.all()]

    def get(self, name: str) -> Mapping[str, Any]:
        """Return the status of a mirror. Raises ``UnknownMirror``."""
        return self._shown(self._broker.mirrors.get(name))

    def _shown(self, definition: MirrorDefinition) -> Mapping[str, Any]:
        running = self._running.get(definition.name)
        if running is None:
            status: Mapping[str, Any] = {"state": "paused" if definition.is_paused else "starting"}
            return {**status, "restarts": 0, "definition": definition}
        return {**running.process.status, "restarts": running.process.restarts, "definition": definition}

    async def put(self, definition: MirrorDefinition) -> None:
        """Make a mirror, or change one; it runs with the new definition when this returns.

        Raises ``InvalidRequest``, and as the catalog does: then it goes on as it was.
        """
        await self._broker.cluster.refresh()
        async with self._changes:
            await self._broker.mirrors.put(definition)
            await self._end(definition.name)
            self._begin(definition)

    async def delete(self, name: str) -> None:
        """Forget a mirror; its copies stay copies, which another mirror of this name goes on with.

        Raises ``UnknownMirror``, and as the catalog does.
        """
        await self._broker.cluster.refresh()
        async with self._changes:
            await self._broker.mirrors.delete(name)
            await self._end(name)

    async def promote(
        self, name: str, topic_name: str | None = None
    ) -> tuple[Sequence[tuple[str, list[EndedTransaction]]], str]:
        """Make an ordinary topic of one copy of a mirror, or of all: then the mirror is forgotten.

        What the source has by now is copied before, and what its groups have committed, if it answers in time. Returns the
        topics, with the transactions that were open and are aborted; and why the copies may lack something, empty if not.

        Raises:
            UnknownMirror: there is none.
            UnknownTopic, InvalidRequest: it has no such copy.
            StorageError, CatalogFailed: topics may have been promoted; it may be called again.
        """
        await self._broker.cluster.refresh()
        async with self._changes:
            definition = self._broker.mirrors.get(name)
            if definition.is_outward:
                raise InvalidRequest(
                    f"the copies of mirror {name!r} are topics of another cluster: delete the mirror to end it"
                )
            if topic_name is not None and topic_name not in self._copies_of(name):
                self._broker.topic(topic_name)
                raise InvalidRequest(f"topic {topic_name!r} is no copy of mirror {name!r}")
            unfinished = await self._finish(definition)
            # It may have made topics.
            await self._broker.cluster.refresh()
            names = self._copies_of(name) if topic_name is None else [topic_name]
            try:
                promoted = [(one, await self._broker.copies.promote(one)) for one in names]
                if topic_name is None:
                    await self._broker.mirrors.delete(name)
            finally:
                if any(known.name == name for known in self._broker.mirrors.all()):
                    self._begin(definition)
        if self._broker.cluster.is_shared:
            await asyncio.sleep(_HEARD_S)
        return promoted, unfinished

    def _copies_of(self, name: str) -> list[str]:
        return [topic.name for topic in self._broker.topics() if topic.config.mirror == name]

    async def truncate(self, name: str, topic_name: str | None = None) -> Sequence[CutCopy]:
        """Cut copies that have diverged back to what their source has, too; the mirror goes on from there.

        Of one topic, or of all. Where they begin to differ is what the process of the mirror has found.

        Raises:
            UnknownMirror, UnknownTopic: there is none.
            InvalidRequest: it is not known yet where they begin to differ.
            StorageError, GroupStoreFailed: some may have been cut; it may be called again.
        """
        async with self._changes:
            definition = self._broker.mirrors.get(name)
            if topic_name is not None:
                self._broker.topic(topic_name)
            ends = {
                one: end
                for one, end in self._diverged(name)
                if topic_name in (None, one.topic) and self._broker.topic(one.topic).config.mirror == name
            }
            if ends and self._broker.cluster.is_shared:
                raise InvalidRequest(
                    "copies on shared storage cannot be cut back: delete them, and the mirror copies them again: "
                    + ", ".join(sorted({one.topic for one in ends}))
                )
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
        running = self._running.get(name)
        for topic in () if running is None else running.process.status.get("topics", ()):
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
