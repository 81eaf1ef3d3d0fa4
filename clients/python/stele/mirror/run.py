"""A mirror as a whole: finds topics, copies them, and reports, until it is stopped."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import SteleClientError
from ..records import TopicPartition
from ..supervised import report, silence_s
from . import positions, status
from .access import Access
from .copying import Copying
from .definition import Definition, addresses
from .errors import MirrorError, SourceError
from .flow import Flow
from .groups import Groups
from .outward.target import KafkaTarget
from .partition import pause_s
from .properties import SourceConfig, parse, resolved
from .source import reads
from .source.cluster import Source
from .target import SteleTarget, Target
from .topics import Topics

logger: logging.Logger = logging.getLogger("stele.mirror")

# How often the source is asked for its topics and leaders, and how soon again if a leader has changed.
_DISCOVERY_S = 5.0
_DISCOVERY_SOON_S = 0.2
_GROUPS_S = 3.0
_ACCESS_S = 30.0
_SECRET_BYTES_MAX = 1 << 20
_REPORT_S = 0.5
_GROUPS_SHOWN_MAX = 20
_NICENESS = 5
# What the broker says before it promotes copies, and how long the mirror then goes on.
_FINISH = b"finish"
_FINISH_S, _FINISH_GROUPS_S = 15.0, 10.0
_LOOK_S = 0.05


class Mirror:
    """One mirror; ``run`` ends only when it is cancelled."""

    def __init__(
        self,
        definition: Definition,
        broker: str,
        properties: Mapping[str, str],
        *,
        url: str = "",
        is_shared: bool = False,
    ) -> None:
        """``broker`` is a URL of its binary listener, to which the mirror copies.

        ``is_shared``: the broker is one of a cluster. An outward one reads from there: ``broker`` is then ``HOST:PORT``
        of the Kafka listener, ``properties`` are those of connections to it, and in a cluster ``url`` is that of the
        binary listener.

        Raises:
            MirrorError: the definition or the URL cannot be used.
        """
        self._definition = definition
        other = Source(definition.servers, self._config)
        self._access: Access | None = None
        self._own: SteleTarget | None = None
        read = partial(reads.read_groups, other)
        if definition.is_outward:
            own = partial(parse, properties, mirror=definition.name)
            # Where it says it is need not be reachable from here.
            self._source = Source(addresses(broker), own, advertised=False)
            read = partial(reads.read_groups, self._source)
            if is_shared:
                self._own = SteleTarget(url)
                read = self._own.read_groups
            self._target: Target = KafkaTarget(
                other,
                mirror=definition.name,
                keeps_offsets=definition.offsets == "equal",
                source_id=lambda: self._source.id,
            )
        else:
            self._source = other
            try:
                self._target = target = SteleTarget(broker, is_shared=is_shared)
            except ValueError as error:
                raise MirrorError(str(error)) from error
            self._access = Access(other, target) if definition.acls else None
        is_shared = is_shared and not definition.is_outward
        piece_bytes = positions.PIECE_BYTES_SHARED if is_shared else positions.PIECE_BYTES_USUAL
        self._flow = Flow(definition.rate, piece_bytes)
        self._wanted = asyncio.Event()
        self._discovering = asyncio.Lock()
        self._topics = Topics(self._source, self._target, pattern=definition.topics, mirror=definition.name)
        self._copying = Copying(self._source, self._target, self._flow, refresh=self._refresh)
        self._groups = (
            None
            if definition.groups is None
            else Groups(partial(read, definition.groups), self._target, end_of=self._end_of)
        )
        self._rate = status.Rate()
        self._delay = status.Delay()
        self._failure = ""
        self._side_failures: dict[str, str] = {}

    def _config(self) -> SourceConfig:
        """Return the properties with their secrets as they are now."""
        given = resolved(self._definition.properties, os.environ, _text_of)
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
            if self._own is not None:
                await self._own.close()

    async def _discover(self) -> None:
        failures = 0
        while True:
            self._wanted.clear()
            try:
                await self._discover_once()
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

    async def _discover_once(self) -> None:
        async with self._discovering:
            await self._topics.refresh()
            self._copying.update(one for topic in self._topics.known.values() for one in topic.partitions())

    async def finish(self) -> str:
        """Copy what the source has by now, and what its groups have committed; ``run`` goes on meanwhile.

        It takes 25 seconds at most. Return why not all is copied; empty if it is, but for what has stopped.
        """
        if self._failure:
            return self._failure
        try:
            try:
                async with asyncio.timeout(_FINISH_S):
                    await self._reach_source()
            except TimeoutError:
                return f"the source was {self._lag()} records ahead after {_FINISH_S:.0f} seconds"
            if self._groups is not None:
                async with asyncio.timeout(_FINISH_GROUPS_S):
                    await self._groups.copy()
        except TimeoutError:
            return f"committed offsets were not copied within {_FINISH_GROUPS_S:.0f} seconds"
        except (SourceError, SteleClientError) as error:
            return str(error)
        stopped = [one for one in self._copying.partitions.values() if one.is_stopped]
        return f"{stopped[0].name} has stopped: {stopped[0].error}" if stopped else ""

    async def _reach_source(self) -> None:
        # Their clients know the outcome already, and the markers follow.
        while await reads.has_ending_transactions(self._source):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)
        await self._discover_once()
        await self._copying.reach_ends(
            {
                topic.source.name
                for topic in self._topics.known.values()
                if topic.state in ("copying", "waiting")
            }
        )

    def _lag(self) -> int:
        return sum(one.lag for one in self._copying.partitions.values())

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
        not_copied = [f"{what}: {why}" for what, why in self._side_failures.items()]
        if self._access is not None:
            not_copied += self._access.not_copied
        if self._groups is not None and (busy := sorted(self._groups.busy)):
            not_copied.append(
                f"committed offsets of {len(busy)} groups that have members here: {_shown(busy)}"
            )
        if self._groups is not None and (shares := sorted(self._groups.shares)):
            not_copied.append(
                f"{len(shares)} share groups, whose state only their broker has: {_shown(shares)}"
            )
        now_s = asyncio.get_running_loop().time()
        return status.document(
            self._definition.name,
            topics=list(self._topics.known.values()),
            partitions=self._copying.partitions,
            failure=self._failure,
            copied_bytes=self._flow.stored_bytes,
            bytes_per_s=self._rate.of(self._flow.stored_bytes, now_s),
            lag_s=self._delay.of(self._copying.partitions, now_s),
            not_copied=not_copied,
        )


def _shown(groups: Sequence[str]) -> str:
    return ", ".join(groups[:_GROUPS_SHOWN_MAX]) + (", …" if len(groups) > _GROUPS_SHOWN_MAX else "")


def _text_of(name: str) -> str:
    """Return the text of a file for secrets, from the directory that the broker names."""
    directory = os.environ.get("STELE_MIRROR_SECRETS_DIR")
    if not directory or Path(name).name != name:
        raise MirrorError(
            f"${{file:{name}}} must be the name of a file in the directory STELE_MIRROR_SECRETS_DIR"
        )
    with Path(directory, name).open("rb") as file:
        return file.read(_SECRET_BYTES_MAX).decode()


def main() -> int:
    """Run the mirror that the broker asks for, until it closes standard input; return the exit code."""
    logging.basicConfig(
        level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    # Where cores are few, the broker and its clients go first.
    os.nice(_NICENESS)
    # httpx logs every request at level info.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    import uvloop

    return uvloop.run(_main(os.environ))


async def _main(environment: Mapping[str, str]) -> int:
    """Report the status, one JSON object per line, until standard input ends, or is silent for too long."""
    silence = silence_s()
    loop = asyncio.get_running_loop()
    ending = asyncio.create_task(_ended_input(silence))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.cancel)
    try:
        mirror = Mirror(
            Definition.parse(environment.get("STELE_MIRROR_DEFINITION", "")),
            environment.get("STELE_MIRROR_BROKER", ""),
            json.loads(environment.get("STELE_MIRROR_BROKER_CONFIG", "{}")),
            url=environment.get("STELE_MIRROR_BROKER_URL", ""),
            # Only brokers of a cluster have leases.
            is_shared=silence is not None,
        )
    except MirrorError as error:
        report({"state": "failed", "last_error": str(error)})
        return 1
    work = asyncio.create_task(mirror.run())
    while not ending.done() and not work.done():
        await asyncio.wait((work, ending), timeout=_REPORT_S, return_when=asyncio.FIRST_COMPLETED)
        report(mirror.document())
    if not work.done() and not ending.cancelled() and _FINISH in ending.result():
        unfinished = await mirror.finish()
        if unfinished:
            logger.warning("not all of the source is copied: %s", unfinished)
        report({**mirror.document(), "unfinished": unfinished})
    ending.cancel()
    work.cancel()
    _, failure = await asyncio.gather(ending, work, return_exceptions=True)
    if isinstance(failure, Exception):
        logger.error("the mirror has failed", exc_info=failure)
        return 1
    return 0


async def _ended_input(silence_s: float | None) -> bytes:
    """Return the last that came, once standard input has ended; nothing after a silence of the broker."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    last = b""
    with suppress(TimeoutError):
        while True:
            async with asyncio.timeout(silence_s):
                data = await reader.read(4096)
            if not data:
                return last
            last = data
    return b""
