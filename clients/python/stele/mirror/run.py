"""A mirror as a whole: finds topics, copies them, and reports, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ..errors import SteleClientError
from ..records import TopicPartition
from . import status
from .access import Access
from .copying import Copying
from .definition import Definition
from .errors import MirrorError, SourceError
from .flow import Flow
from .groups import Groups
from .partition import pause_s
from .properties import SourceConfig, parse, resolved
from .source.cluster import Source
from .target import Target
from .topics import Topics

logger = logging.getLogger("stele.mirror")

# How often the source is asked for its topics and leaders, and how soon again if a leader has changed.
_DISCOVERY_S = 5.0
_DISCOVERY_SOON_S = 0.2
_GROUPS_S = 3.0
_ACCESS_S = 30.0
_SECRET_BYTES_MAX = 1 << 20


class Mirror:
    """One mirror; ``run`` ends only when it is cancelled."""

    def __init__(self, definition: Definition, url: str) -> None:
        """Raises ``MirrorError`` if the definition or the URL of the target cannot be used."""
        self._definition = definition
        try:
            self._target = Target(url)
        except ValueError as error:
            raise MirrorError(str(error)) from error
        self._source = Source(definition.servers, self._config)
        self._flow = Flow(definition.rate)
        self._wanted = asyncio.Event()
        self._topics = Topics(self._source, self._target, pattern=definition.topics, mirror=definition.name)
        self._copying = Copying(self._source, self._target, self._flow, refresh=self._refresh)
        self._groups = (
            None
            if definition.groups is None
            else Groups(self._source, self._target, pattern=definition.groups, end_of=self._end_of)
        )
        self._access = Access(self._source, self._target) if definition.acls else None
        self._rate = status.Rate()
        self._failure = ""
        self._side_failures: dict[str, str] = {}

    def _config(self) -> SourceConfig:
        """Return the properties with their secrets as they are now."""
        given = resolved(self._definition.source, os.environ, _text_of)
        return parse(given, mirror=self._definition.name)

    def _refresh(self) -> None:
        self._topics.look_again()
        self._wanted.set()

    def _end_of(self, partition: TopicPartition) -> int | None:
        one = self._copying.partitions.get(partition)
        return None if one is None or one.source_end is None or one.is_stopped else one.end

    async def run(self) -> None:
        """Copy until it is cancelled."""
        side: list[Awaitable[None]] = []
        if self._groups is not None:
            side.append(self._repeat("committed offsets", self._groups.copy, _GROUPS_S))
        if self._access is not None:
            side.append(self._repeat("ACLs and quotas", self._access.copy, _ACCESS_S))
        try:
            await asyncio.gather(self._discover(), *side)
        finally:
            await self._copying.close()
            await self._source.close()
            await self._target.close()

    async def _discover(self) -> None:
        failures = 0
        while True:
            self._wanted.clear()
            try:
                await self._topics.refresh()
                self._copying.update(
                    one for topic in self._topics.known.values() for one in topic.partitions()
                )
                failures, self._failure = 0, ""
            except Exception as error:  # noqa: BLE001 - the edge of a task: it is logged, shown and tried again
                failures += 1
                self._failed("the topics of the source", error)
                self._failure = str(error) or repr(error)
                await asyncio.sleep(pause_s(failures))
                continue
            await asyncio.sleep(_DISCOVERY_SOON_S)
            try:
                async with asyncio.timeout(_DISCOVERY_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def _repeat(self, what: str, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        failures = 0
        while True:
            try:
                await work()
                failures = 0
                self._side_failures.pop(what, None)
            except Exception as error:  # noqa: BLE001 - the edge of a task, as above
                failures += 1
                self._failed(what, error)
                self._side_failures[what] = str(error) or repr(error)
            await asyncio.sleep(max(every_s, pause_s(failures)))

    def _failed(self, what: str, error: Exception) -> None:
        if isinstance(error, SourceError | MirrorError | SteleClientError):
            logger.warning("%s could not be copied: %s", what, error)
        else:
            logger.error("%s could not be copied", what, exc_info=error)

    def document(self) -> dict[str, Any]:
        """Return the status."""
        groups = self._groups
        not_copied = dict(self._side_failures)
        if self._access is not None:
            not_copied |= self._access.not_copied
        return status.document(
            self._definition.name,
            topics=list(self._topics.known.values()),
            partitions=self._copying.partitions,
            failure=self._failure,
            bytes_per_s=self._rate.of(self._flow.stored_bytes, asyncio.get_running_loop().time()),
            not_copied=not_copied,
            groups=None
            if groups is None
            else {"copied": groups.count, "with_members_here": sorted(groups.busy)[:100]},
        )


def _text_of(path: str) -> str:
    with Path(path).open("rb") as file:
        return file.read(_SECRET_BYTES_MAX).decode()
