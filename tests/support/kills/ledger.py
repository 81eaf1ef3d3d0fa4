"""What a broker that is killed has acknowledged."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[str, int]
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Content:
    """A record without its place; ``timestamp_ms`` None if the broker chose it."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    def is_kept_by(self, stored: Content) -> bool:
        """Return whether ``stored`` is this record."""
        return (self.value, self.key, self.headers) == (stored.value, stored.key, stored.headers) and (
            self.timestamp_ms in (None, stored.timestamp_ms)
        )


@dataclass
class Ledger:
    """Acknowledged records by partition and offset."""

    acked: defaultdict[Place, dict[int, Content]] = field(default_factory=lambda: defaultdict(dict))
    acks: Counter[str] = field(default_factory=Counter[str])
    # Writes that were refused because the disk is full, by protocol; only then may any be refused.
    refusals: Counter[str] = field(default_factory=Counter[str])
    may_refuse: bool = False
    # Values of transactions that were aborted.
    aborted: set[bytes] = field(default_factory=set[bytes])
    # Of each producer after each acknowledgement.
    pause_s: float = 0.0
    # Set with each of them.
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def ack(self, place: Place, base_offset: int, contents: Sequence[Content]) -> None:
        for offset, content in enumerate(contents, base_offset):
            known = self.acked[place].setdefault(offset, content)
            assert known == content, f"offset {offset} of {place} given twice"
        self.acks[place[0]] += len(contents)
        self.moved.set()

    async def pause(self) -> None:
        """Let a producer wait before it goes on."""
        if self.pause_s:
            await asyncio.sleep(self.pause_s)

    def refuse(self, protocol: str) -> None:
        self.refusals[protocol] += 1
        self.moved.set()

    def check(
        self,
        place: Place,
        stored: Mapping[int, Content],
        *,
        is_dense: bool,
        is_once: bool,
        until: int | None = None,
    ) -> None:
        """Compare a whole partition, or what is before ``until``, with what was acknowledged.

        Raises:
            AssertionError: a record is lost, changed, there twice, or an offset is missing.
        """
        if is_dense:
            assert sorted(stored) == list(range(len(stored))), f"{place} has holes"
        for offset, content in self.acked[place].items():
            if until is not None and offset >= until:
                continue
            assert offset in stored, f"offset {offset} of {place} was acked and is lost: {content}"
            assert content.is_kept_by(stored[offset]), (
                f"offset {offset} of {place} holds another record: {stored[offset]}, and not {content}"
            )
        if is_once:
            values = Counter(content.value for content in stored.values())
            assert len(values) == len(stored), f"{place} holds a record twice: {values.most_common(3)}"
        if shown := self.aborted.intersection(content.value or b"" for content in stored.values()):
            raise AssertionError(f"{place} shows records of aborted transactions: {sorted(shown)[:3]}")
