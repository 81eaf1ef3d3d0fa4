"""Runs a process for each mirror, and carries out what operators ask of mirrors.

The process (``stele mirror run``) reads the source and appends through the binary listener, where ``Copies`` takes what it
brings. A mirror keeps nothing else: its position in each partition is where the copy ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client.registry import Collector

from ..broker.broker import Broker
from ..broker.mirrors import MirrorDefinition
from ..broker.producing.copies import EndedTransaction
from ..errors import InvalidRequest
from ..settings import Settings
from ..supervised_process import SupervisedProcess
from .metrics import MirrorCollector

# As ``stele.mirror.run`` has them: what it is told before its copies are promoted, and how long that may take it.
_FINISH = b"finish\n"
_FINISH_MS = 15_000


class Mirrors:
    """All mirrors of one broker."""

    def __init__(self, settings: Settings, broker: Broker, broker_url: str, api_key: str = "") -> None:
        """``api_key`` logs the processes in to the broker; empty without logins."""
        self._settings = settings
        self._broker = broker
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

    async def _end(self, name: str, *, finishes: bool = False) -> None:
        """End a process; with ``finishes`` it first copies what the source has by now."""
        process = self._processes.pop(name, None)
        if process is not None and finishes:
            await process.close(last_words=_FINISH, more_ms=_FINISH_MS)
        elif process is not None:
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

        What the source has by now is copied before, and what its groups have committed, if it answers in time. Returns the
        topics, with the transactions that were open and are aborted.

        Raises:
            UnknownMirror: there is none.
            UnknownTopic, InvalidRequest: it has no such copy.
            StorageError, CatalogFailed: topics may have been promoted; it may be called again.
        """
        async with self._changes:
            definition = self._broker.mirrors.get(name)
            if topic_name is not None and topic_name not in self._copies_of(name):
                self._broker.topic(topic_name)
                raise InvalidRequest(f"topic {topic_name!r} is no copy of mirror {name!r}")
            await self._end(name, finishes=True)
            names = self._copies_of(name) if topic_name is None else [topic_name]
            try:
                promoted = [(one, await self._broker.copies.promote(one)) for one in names]
                if topic_name is None:
                    await self._broker.mirrors.delete(name)
            finally:
                if any(known.name == name for known in self._broker.mirrors.all()):
                    self._begin(definition)
            return promoted

    def _copies_of(self, name: str) -> list[str]:
        return [topic.name for topic in self._broker.topics() if topic.config.mirror == name]
