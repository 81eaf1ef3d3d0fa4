"""What the clients of a run were told, and what must follow from it.

Each value is sent once, and says how many failovers of the database there had been. So a record that is gone can be
held against the failovers that may have lost it, and against what the brokers have reported.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from zlib import crc32

if TYPE_CHECKING:
    from .reports import Report

Place = tuple[str, int]
# The topic whose records are written in transactions, one record per partition.
TRANSACTIONAL = "pairs"
# How a record that is gone was lost: a broker has reported it; or the standby lacked it and a broker that may have
# been the only one to know it had ended before it could tell; or neither.
Loss = Literal["reported", "known to a dead broker alone", "unexplained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The failover ``number``, counted from 1, to a standby that had the logs up to ``ends``.

    ``epoch`` is that of the history that began with it. ``all_lived``: no broker ended between the last moment when
    the standby had everything, and the end of the failover.
    """

    number: int
    is_asynchronous: bool
    ends: Mapping[Place, int]
    epoch: int
    all_lived: bool


@dataclass(frozen=True, slots=True)
class _Ack:
    offset: int
    is_replicated: bool


@dataclass
class Ledger:
    """Used by all threads of a run. The first broken promise stays in ``broken``."""

    # Value of each acknowledged or read record, by its partition and offset; and those that an offset held as well.
    at: defaultdict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    others: defaultdict[Place, set[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(set))
    # Checksum of the value by offset and leader epoch.
    in_epochs: defaultdict[Place, dict[tuple[int, int], int]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    acked: defaultdict[Place, dict[bytes, _Ack]] = field(default_factory=lambda: defaultdict(dict))
    # Acknowledged without an offset, because the broker has recognized a repeat but forgotten its place.
    acked_somewhere: defaultdict[Place, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    # By group and partition: a lower bound of the committed offset.
    committed: defaultdict[tuple[str, Place], int] = field(default_factory=lambda: defaultdict(int))
    # Rises when an asynchronous failover begins, then it is odd, and when it ends.
    window: int = 0
    # Checksums of what a reader with leader epochs has in the end, by offset.
    read_with_epochs: defaultdict[Place, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    # How many primaries have died so far.
    era: int = 0
    failovers: list[Failover] = field(default_factory=list[Failover])
    reports: list[Report] = field(default_factory=list["Report"])
    # What was acknowledged and is gone.
    losses: dict[tuple[Place, bytes], Loss] = field(default_factory=dict[tuple[Place, bytes], Loss])
    counts: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    broken: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, text: str) -> None:
        with self.lock:
            self.broken.append(text)

    def see(self, place: Place, offset: int, value: bytes, epoch: int = -1) -> None:
        """Note that a broker has shown a record, in a batch of the leader epoch ``epoch`` if that is known."""
        with self.lock:
            known = self.at[place].setdefault(offset, value)
            if known != value and self.window:
                # An asynchronous failover may explain it: ``check_log`` decides.
                self.others[place].add((offset, value))
                known = value
            checksum = crc32(value)
            in_epoch = self.in_epochs[place].setdefault((offset, epoch), checksum) if epoch >= 0 else checksum
        if known != value:
            self.fail(f"offset {offset} of {place} holds {value!r}, and held {known!r}")
        if in_epoch != checksum:
            self.fail(
                f"offset {offset} of {place} holds {value!r}, and held another record in epoch {epoch}, too"
            )

    def ack(self, place: Place, offset: int, value: bytes, by: str, *, is_replicated: bool = False) -> None:
        """Note an acknowledgement; ``offset`` -1 if it came without."""
        with self.lock:
            self.counts[by] += 1
            if offset < 0:
                self.acked_somewhere[place].add(value)
                return
            self.acked[place][value] = _Ack(offset, is_replicated)
            self.counts["acknowledged as replicated"] += is_replicated
        self.see(place, offset, value)

    def error(self, by: str, error: object) -> None:
        """Count an error that a client was given, which is no broken promise."""
        with self.lock:
            self.errors[f"{by}: {type(error).__name__}: {str(error)[:60]}"] += 1

    # ── failovers ──

    def begin_asynchronous_failover(self) -> None:
        """Let commits that are known from now on be no lower bound."""
        with self.lock:
            self.window += 1

    def end_failover(self, failover: Failover) -> None:
        """Note a failover, of which all brokers know."""
        with self.lock:
            self.failovers.append(failover)
            if failover.is_asynchronous:
                self.window += 1
                self.committed.clear()

    def _lost_by(self, offset: int, place: Place, value: bytes) -> list[Failover]:
        """Return the failovers whose standby may have lacked a record."""
        era, offset = int(value.split(b"-", 3)[2]), offset + _marker(place)
        return [
            failover
            for failover in self.failovers
            if era < failover.number and offset >= failover.ends.get(place, 0)
        ]

    def may_have_forgotten(self, place: Place, offset: int) -> bool:
        """Return whether a failover may have lost all that the log knew of a producer that begins at ``offset``."""
        return any(failover.ends.get(place, 0) <= offset for failover in self.failovers)

    def _loss(self, place: Place, offset: int, value: bytes) -> Loss:
        failovers = [each for each in self._lost_by(offset, place, value) if each.is_asynchronous]
        offset += _marker(place)
        for failover in failovers:
            if any(
                report.place == place
                and report.first <= offset <= report.last
                and report.epoch >= failover.epoch
                for report in self.reports
            ):
                return "reported"
        if any(not failover.all_lived for failover in failovers):
            return "known to a dead broker alone"
        return "unexplained"

    def check_reports(self) -> None:
        """Fail if brokers have reported a loss that there was not."""
        for report in self.reports:
            begins = {
                failover.ends.get(report.place, 0)
                for failover in self.failovers
                if failover.epoch <= report.epoch
            }
            if report.first not in begins:
                self.fail(f"{report} is reported, and the standbys had the log up to {sorted(begins)}")

    # ── groups ──

    def commit(self, group: str, place: Place, offset: int, window: int) -> None:
        """Note that a commit succeeded that was sent in ``window``."""
        with self.lock:
            self.counts[f"commits of {group}"] += 1
            if window == self.window and not window % 2:
                self.committed[group, place] = max(self.committed[group, place], offset)

    def committed_now(self, group: str) -> tuple[int, dict[Place, int]]:
        """Return the window, and what is known to be committed at least."""
        with self.lock:
            known = {place: offset for (of, place), offset in self.committed.items() if of == group}
            return self.window, known

    def see_committed(
        self, group: str, before: tuple[int, dict[Place, int]], shown: dict[Place, int] | None, at: str
    ) -> None:
        """Compare what a broker shows, None if it does not know the group, with what was known before."""
        window, known = before
        with self.lock:
            if window != self.window or window % 2:
                return
            self.counts[f"looks at {group}"] += 1
            for place, offset in (shown or {}).items():
                self.committed[group, place] = max(self.committed[group, place], offset)
        for place, offset in known.items():
            if (shown or {}).get(place, 0) < offset:
                self.fail(
                    f"{at} shows {shown} as the committed offsets of {group}, after {offset} in {place}"
                )

    # ── the end ──

    def check_log(
        self, place: Place, start: int, records: dict[int, bytes], at: str, *, is_dense: bool = True
    ) -> None:
        """Compare everything that a broker has of a partition, from its log start on, with the promises."""
        offsets = sorted(records)
        if is_dense and offsets != list(range(start, start + len(offsets))):
            missing = sorted(set(range(start, offsets[-1] + 1)) - records.keys())[:5] if offsets else []
            self.fail(f"{at}: the offsets of {place} are not dense from {start} on; missing {missing}")
        for offset, value in records.items():
            self.see(place, offset, value)
        with self.lock:
            acked, somewhere = dict(self.acked[place]), set(self.acked_somewhere[place])
            shown = {*self.at[place].items(), *self.others[place]}
        gone = {
            value: ack
            for value, ack in acked.items()
            if ack.offset >= start and records.get(ack.offset) != value
        }
        for value, ack in gone.items():
            loss = "unexplained" if ack.is_replicated else self._loss(place, ack.offset, value)
            with self.lock:
                self.losses[place, value] = loss
        if wrong := [
            (ack, value[:20]) for value, ack in gone.items() if self.losses[place, value] == "unexplained"
        ]:
            self.fail(f"{at}: {len(wrong)} acknowledged records of {place} are lost, the first is {wrong[0]}")
        if start == 0:
            missed = somewhere - set(records.values())
            if wrong := [value for value in missed if not self._lost_by(2**62, place, value)]:
                self.fail(f"{at}: acknowledged records of {place} are lost: {sorted(wrong)[:3]}")
        if wrong := [
            (offset, value[:20])
            for offset, value in shown
            if offset >= start
            and records.get(offset) != value
            and value not in gone
            and not self._lost_by(offset, place, value)
        ]:
            self.fail(
                f"{at}: {len(wrong)} records of {place} that were read are lost, the first is {min(wrong)}"
            )

    def check_reader(self, place: Place, records: dict[int, bytes], at: str) -> None:
        """Compare what a reader with leader epochs has with what a broker has."""
        read = self.read_with_epochs.get(place)
        if read is not None and read != {offset: crc32(value) for offset, value in records.items()}:
            wrong = sorted(
                offset
                for offset in read.keys() | records.keys()
                if offset not in read or offset not in records or read[offset] != crc32(records[offset])
            )
            self.fail(
                f"{at}: a reader with leader epochs has another log of {place} at {len(wrong)} offsets, {wrong[:3]}"
            )

    def counted_losses(self) -> dict[Loss, int]:
        """Return how many acknowledged records are gone, by what is known of that."""
        return dict(Counter(self.losses.values()))

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


def _marker(place: Place) -> int:
    """Return how far behind a record the marker is that commits it, without which the record is lost, too."""
    return 1 if place[0] == TRANSACTIONAL else 0
