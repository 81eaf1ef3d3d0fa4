"""Which topics a mirror copies, how their copies are made, and why one is not copied.

``planned`` and ``config_changes`` decide; ``Topics`` asks the source and the target.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from ..errors import InvalidRequestError, SteleClientError, TopicExistsError
from ..operations.mirrors import Copy
from ..records import TopicPartition
from ..wire.schema import NO_UUID
from .errors import SourceError, SourceReplied, error_name
from .partition import PartitionCopy
from .source import reads
from .source.cluster import Source
from .source.reads import SourceConfigValue, SourceTopic
from .target import MIRROR, SOURCE_ID, Target

logger: logging.Logger = logging.getLogger("stele.mirror")

# Configurations, and copies that seem to be in order, are looked at again after this.
_CONFIGS_S = 30.0

# What is the matter with a topic as a whole. ``gone``: the source has it no longer; ``promoted``: it is no copy any more.
TopicState = Literal["copying", "waiting", "recreated", "shrunk", "refused", "gone", "promoted"]


@dataclass(slots=True, eq=False)
class MirroredTopic:
    """A topic of the source that the mirror copies, or should."""

    source: SourceTopic
    copy: Copy | None = None
    state: TopicState = "copying"
    error: str = ""
    not_copied: dict[str, str] = field(default_factory=dict[str, str])
    # Those that were set, to be reset when the source goes back to its default.
    configs: set[str] = field(default_factory=set[str])

    def partitions(self) -> list[PartitionCopy]:
        """Return the partitions that have copies; all are stopped if the topic is."""
        if self.copy is None or self.state == "promoted":
            return []
        made = [
            PartitionCopy(
                name=TopicPartition(self.source.name, number),
                topic_id=self.source.topic_id,
                copy_id=self.copy.topic_id,
                leader=leader,
            )
            for number, leader in sorted(self.source.partitions.items())
            if number < self.copy.partitions
        ]
        if self.state in ("recreated", "shrunk", "refused"):
            for one in made:
                one.stop(self.state, self.error)
        return made


def planned(source: SourceTopic, copy: Copy, mirror: str) -> tuple[TopicState, str]:
    """Return whether a topic is a copy of this topic of the source, and if not, why."""
    known_id = copy.configs.get(SOURCE_ID, "")
    if copy.configs.get(MIRROR, "") != mirror:
        if known_id and not copy.configs.get(MIRROR):
            return "promoted", "it was promoted, and is a topic of its own"
        other = copy.configs.get(MIRROR, "")
        what = f"a copy of the mirror {other!r}" if other else "no copy"
        return "refused", (
            f"topic {source.name!r} exists here and is {what}; delete it, or leave it out of the mirror's topics"
        )
    ids = known_id, id_text(source.topic_id)
    if all(ids) and ids[0] != ids[1] and id_text(NO_UUID) not in ids:
        return "recreated", (
            f"the source has deleted topic {source.name!r} and made another one of that name: delete the copy to copy that "
            "one, or promote it to keep what it has"
        )
    if len(source.partitions) < copy.partitions:
        return "shrunk", (
            f"topic {source.name!r} has {len(source.partitions)} partitions at the source and {copy.partitions} here: it was "
            "made anew; delete the copy to copy it again, or promote it to keep what it has"
        )
    return "copying", ""


def id_text(topic_id: bytes) -> str:
    return str(UUID(bytes=topic_id))


def config_changes(
    source: Mapping[str, SourceConfigValue], copy: Mapping[str, str], was_set: Iterable[str]
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Return what to set (None resets), and what cannot be copied, with its reason.

    Only what differs from the default of the source is copied, and only if the target has another value.
    """
    changes: dict[str, str | None] = {
        name: None for name in was_set if name not in source or source[name].is_default
    }
    missing: dict[str, str] = {}
    for name, config in source.items():
        if config.is_default or config.value is None or name.startswith(MIRROR):
            continue
        if name in copy:
            if copy[name] != config.value:
                changes[name] = config.value
        elif config.is_of_topic:
            missing[name] = f"{config.value[:100]}: the target has no such configuration"
    return changes, missing


class Topics:
    """The topics of a mirror, as of the last ``refresh``."""

    def __init__(self, source: Source, target: Target, *, pattern: re.Pattern[str], mirror: str) -> None:
        self._source = source
        self._target = target
        self._pattern = pattern
        self._mirror = mirror
        self._configs_at_s = 0.0
        self.known: dict[str, MirroredTopic] = {}

    async def refresh(self) -> None:
        """Look at the source and at the copies; make those that are missing, and let them grow.

        Raises:
            SourceError, MirrorError: the source does not answer.
        """
        now_s = asyncio.get_running_loop().time()
        listed = {
            topic.name: topic
            for topic in await reads.topics(self._source)
            if self._pattern.fullmatch(topic.name)
        }
        for name, known in list(self.known.items()):
            if name not in listed and known.state != "promoted":
                await self._lose(known)
        is_due = now_s >= self._configs_at_s
        changed: list[MirroredTopic] = []
        for name, topic in listed.items():
            known = self.known.setdefault(name, MirroredTopic(topic))
            grew = len(topic.partitions) != len(known.source.partitions)
            if topic.error:
                known.state, known.error = "waiting", f"the source: {error_name(topic.error)}"
                continue
            is_other = topic.topic_id != known.source.topic_id
            known.source = topic
            if is_due or grew or is_other or known.copy is None or known.state != "copying":
                changed.append(known)
        configs: dict[str, dict[str, SourceConfigValue]] = {}
        if changed:
            configs = await self._configs([known.source.name for known in changed])
        await asyncio.gather(*(self._refresh(known, configs.get(known.source.name)) for known in changed))
        if is_due:
            self._configs_at_s = now_s + _CONFIGS_S

    async def _lose(self, known: MirroredTopic) -> None:
        """Note that the source has a topic no longer; forget it once its copy was deleted here, or promoted."""
        name = known.source.name
        known.state, known.error = (
            "gone",
            (
                f"topic {name!r} no longer exists at the source, or may not be seen: delete it here, or promote it"
            ),
        )
        with suppress(SteleClientError, SourceError):
            copy = await self._target.describe(name)
            if copy is None or copy.configs.get(MIRROR) != self._mirror:
                del self.known[name]

    def look_again(self) -> None:
        """Look at the copies with the next ``refresh``: one may have been deleted or promoted."""
        self._configs_at_s = 0.0

    async def _configs(self, names: Sequence[str]) -> dict[str, dict[str, SourceConfigValue]]:
        try:
            return await reads.topic_configs(self._source, names)
        except SourceError as error:
            # The right to read them may be missing; records are more important.
            logger.warning("the configurations of the source cannot be read: %s", error)
            return {}

    async def _refresh(self, known: MirroredTopic, configs: Mapping[str, SourceConfigValue] | None) -> None:
        name, source = known.source.name, known.source
        try:
            if why := self._target.refusal(configs or {}):
                known.state, known.error = "refused", f"topic {name!r} {why}"
                return
            copy = await self._target.describe(name)
            if copy is None:
                copy = await self._make(source)
                known.configs.clear()
            known.state, known.error = planned(source, copy, self._mirror)
            if known.state == "copying":
                if len(source.partitions) > copy.partitions:
                    await self._target.alter(name, partitions=len(source.partitions))
                if configs is not None:
                    await self._configure(known, copy, configs)
                copy = await self._target.describe(name) or copy
            known.copy = copy
        except (SteleClientError, SourceReplied) as error:
            known.state, known.error = "waiting", f"the copy: {error}"

    async def _make(self, source: SourceTopic) -> Copy:
        configs = {MIRROR: self._mirror, SOURCE_ID: id_text(source.topic_id)}
        with suppress(TopicExistsError):
            await self._target.create(source.name, partitions=len(source.partitions), configs=configs)
        copy = await self._target.describe(source.name)
        if copy is None:
            raise SteleClientError(f"topic {source.name!r} was deleted just after it was made")
        return copy

    async def _configure(
        self, known: MirroredTopic, copy: Copy, configs: Mapping[str, SourceConfigValue]
    ) -> None:
        changes, known.not_copied = config_changes(configs, copy.configs, known.configs)
        if not changes:
            return
        try:
            await self._target.alter(known.source.name, configs=changes)
            known.configs |= {name for name, value in changes.items() if value is not None}
        except InvalidRequestError:
            # One of them; which one, and why, is found out one by one.
            for name, value in changes.items():
                try:
                    await self._target.alter(known.source.name, configs={name: value})
                    known.configs.add(name)
                except InvalidRequestError as error:
                    known.not_copied[name] = f"{str(value)[:100]}: {error}"
        known.configs -= {name for name, value in changes.items() if value is None}
