"""What the clients of a run were told, and what must follow from it."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int]


@dataclass
class Ledger:
    """Used by all threads of a run. The first broken promise stays in ``broken``."""

    # Value of each acknowledged or read record, by its partition and offset.
    at: defaultdict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    acked: defaultdict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    # Acknowledged without an offset, because the broker has recognized a repeat but forgotten its place.
    acked_somewhere: defaultdict[Place, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    # By group and partition: a lower bound of the committed offset.
    committed: defaultdict[tuple[str, Place], int] = field(default_factory=lambda: defaultdict(int))
    counts: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, text: str) -> None:
        with self.lock:
            self.broken.append(text)

    def see(self, place: Place, offset: int, value: bytes) -> None:
        """Note that a broker has shown a record."""
        with self.lock:
            known = self.at[place].setdefault(offset, value)
        if known != value:
            self.fail(f"offset {offset} of {place} holds {value!r}, and held {known!r}")

    def ack(self, place: Place, offset: int, value: bytes, by: str) -> None:
        """Note an acknowledgement; ``offset`` -1 if it came without."""
        with self.lock:
            self.counts[by] += 1
            if offset < 0:
                self.acked_somewhere[place].add(value)
                return
            self.acked[place][offset] = value
        self.see(place, offset, value)

    def error(self, by: str, error: object) -> None:
        """Count an error that a client was given, which is no broken promise."""
        with self.lock:
            self.errors[f"{by}: {type(error).__name__}: {str(error)[:60]}"] += 1

    def commit(self, group: str, place: Place, offset: int) -> None:
        """Note that a commit succeeded."""
        with self.lock:
            self.counts[f"commits of {group}"] += 1
            self.committed[group, place] = max(self.committed[group, place], offset)

    def committed_now(self, group: str) -> dict[Place, int]:
        with self.lock:
            return {place: offset for (of, place), offset in self.committed.items() if of == group}

    def see_committed(self, group: str, before: dict[Place, int], shown: dict[Place, int], at: str) -> None:
        """Compare what a broker shows with what was known when it was asked."""
        for place, offset in before.items():
            if shown.get(place, 0) < offset:
                self.fail(
                    f"{at} shows {shown.get(place)} as the committed offset of {group} in {place}, after {offset}"
                )
        with self.lock:
            self.counts[f"looks at {group}"] += 1
            for place, offset in shown.items():
                self.committed[group, place] = max(self.committed[group, place], offset)

    def check_log(self, place: Place, start: int, records: dict[int, bytes], at: str) -> None:
        """Compare everything that a broker has of a partition, from its log start on, with the promises."""
        offsets = sorted(records)
        if offsets != list(range(start, start + len(offsets))):
            missing = sorted(set(range(start, offsets[-1] + 1)) - records.keys())[:5] if offsets else []
            self.fail(f"{at}: the offsets of {place} are not dense from {start} on; missing {missing}")
        for offset, value in records.items():
            self.see(place, offset, value)
        with self.lock:
            acked, somewhere = dict(self.acked[place]), set(self.acked_somewhere[place])
            known = dict(self.at[place])
        lost = [offset for offset in acked if offset >= start and offset not in records]
        if lost:
            self.fail(f"{at}: {len(lost)} acknowledged records of {place} are lost, the first is {min(lost)}")
        if start == 0 and (gone := somewhere - set(records.values())):
            self.fail(f"{at}: acknowledged records of {place} are lost: {sorted(gone)[:3]}")
        if shown := [offset for offset in known if offset >= start and offset not in records]:
            self.fail(f"{at}: records of {place} that were read are lost, the first is {min(shown)}")

    @staticmethod
    def repeated(records: dict[int, bytes]) -> set[bytes]:
        """Return the values that are there more than once."""
        return {value for value, count in Counter(records.values()).items() if count > 1}

    def check_order(self, place: Place, records: dict[int, bytes], at: str) -> None:
        """The records of a producer are in the order in which it sent them."""
        numbers = [int(records[offset].split(b"-")[1]) for offset in sorted(records)]
        if numbers != sorted(numbers):
            wrong = next(i for i in range(1, len(numbers)) if numbers[i] < numbers[i - 1])
            self.fail(f"{at}: the order of {place} changed at {numbers[wrong - 1 : wrong + 1]}")
