"""Gaps: changes that the topics may lack, as the slot and the timelines of PostgreSQL tell.

LSNs are compared with those that earlier runs have noted. After a failover they stand for the same changes up to where
the new primary left the timeline of the old one, and for others after it.
"""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from .context import RunContext
from .copying.copies import Copies
from .decoding.notation import lsn_text
from .errors import GapError
from .postgres.catalog import FAILOVER_SINCE, SlotInfo
from .postgres.replication import Stream
from .postgres.timelines import Timelines
from .state import Notebook, SlotState

logger: logging.Logger = logging.getLogger("stele.cdc")

# A run begins the next epoch of its producer, and more are skipped by failovers of a cluster. A broker that was restored
# from its replica skips more still (``app.cluster.sqlite.restored``).
EPOCHS_OF_A_RESTORE = 2_000


class _Gap(NamedTuple):
    """``is_ahead``: the topics have changes up to ``to_lsn`` that this server lacks."""

    reason: str
    from_lsn: int
    to_lsn: int
    is_ahead: bool = False


class Gaps:
    """Finds the gaps before a run streams, and notes how far the slot is."""

    def __init__(
        self, context: RunContext, notebook: Notebook, copies: Copies, known: SlotState | None
    ) -> None:
        self._context = context
        self._options = context.options
        self._postgres = context.postgres
        self._writer = context.writer
        self._notebook = notebook
        self._copies = copies
        self._known = SlotState(None) if known is None else known
        # Where the slot can be at most if it has all changes since the last run; None if that is unknown.
        self._slot_lsn_max = self._known.confirmed_lsn
        self._timelines = Timelines(0, {})
        self._gap: _Gap | None = None
        self._lost: list[str] = []

    # ── what is noted ──

    def note(self, confirmed_lsn: int | None, *, stored_lsn: int) -> None:
        """Note up to where the slot may be confirmed, None if this is not known yet. Raises SteleClientError."""
        self._note(confirmed_lsn, stored_lsn, self._writer.epoch)

    def note_first(self) -> None:
        """Note the epoch before the first copy is done: from then on a restore of the broker is noticed."""
        if self._known.epoch < 0 and self._gap is None:
            self.note(None, stored_lsn=self._context.status.confirmed_lsn)

    def _note(self, confirmed_lsn: int | None, stored_lsn: int, epoch: int, gap_lsn: int = 0) -> None:
        noted = SlotState(
            confirmed_lsn, self._timelines.current, epoch, dict(self._timelines.left), stored_lsn, gap_lsn
        )
        self._notebook.note("slot", noted, now_ms=_now_ms())

    # ── gaps ──

    def lack(self, confirmed_lsn: int) -> str | None:
        """Return why the topics lack changes that earlier runs have stored and confirmed, if they may."""
        known = self._known
        if known.epoch < 0 or 0 <= self._writer.epoch - known.epoch < EPOCHS_OF_A_RESTORE:
            return None
        if known.confirmed_lsn is not None and confirmed_lsn <= known.confirmed_lsn:
            # The broker has what the last run had stored when it ended.
            return None
        return (
            "the broker was restored from its replica, or has forgotten the connector, and may lack changes that slot "
            f"{self._options.slot} does not send again"
        )

    def check(self, stream: Stream, slot: SlotInfo | None, todo: list[str]) -> None:
        """Find a gap; tables in ``todo`` are copied again, so those have none.

        Raises:
            GapError: nobody has accepted the gap.
            CdcError, Interrupted, SteleClientError
        """
        gap = self._find(stream, slot)
        if gap is None:
            return
        lacking = self._copies.followed(before_lsn=2**64 if gap.is_ahead else gap.to_lsn)
        self._lost = [name for name in lacking if name not in todo] or self._lost_messages()
        if not lacking and not self._lost:
            return
        if self._lost and not self._options.accepts(gap.from_lsn):
            raise GapError(
                f"{gap.reason}: changes may be missing from {lsn_text(gap.from_lsn)} to {lsn_text(gap.to_lsn)} "
                f"({', '.join(self._lost)}); run once with --snapshot again, which copies the tables again, or with "
                f"--accept-gap {lsn_text(gap.from_lsn)}, which goes on without them",
                gap.from_lsn,
                gap.to_lsn,
            )
        if gap.is_ahead:
            # From here on, no change has an LSN that the topics know of the old server.
            gap = gap._replace(to_lsn=self._postgres.write_past(gap.to_lsn))
        # What follows would hide it from a run after a crash; the note at the end of the preparation replaces this one.
        self._note(None, gap.from_lsn, self._known.epoch, gap.to_lsn)
        self._gap = gap

    @property
    def has_gap(self) -> bool:
        """Whether there is one that was accepted, or that ends with copies."""
        return self._gap is not None

    def finish(self, stored_lsn: int) -> None:
        """Record the accepted gap, and that there is none any more: the slot has all changes since ``stored_lsn``.

        Raises SteleClientError.
        """
        if self._gap is not None and self._lost:
            reason, from_lsn, to_lsn, _ = self._gap
            to_lsn = max(to_lsn, stored_lsn)
            logger.warning(
                "accepted: changes may be missing from %s to %s (%s)",
                lsn_text(from_lsn),
                lsn_text(to_lsn),
                ", ".join(self._lost),
            )
            self._context.schemas.gap(from_lsn, to_lsn, reason, self._lost, now_ms=_now_ms())
        self.note(None, stored_lsn=stored_lsn)

    def _find(self, stream: Stream, slot: SlotInfo | None) -> _Gap | None:
        known, slot_name = self._known, self._options.slot
        now = self._timelines = stream.timelines()
        # Where this server left the history of the one that was followed last.
        left_lsn = now.parts_from(Timelines(known.timeline, known.history)) if known.timeline else None
        # All changes up to here are in the topics.
        held_lsn = known.stored_lsn if known.gap_lsn else max(known.stored_lsn, self._writer.committed_lsn)
        if left_lsn is not None:
            stored_lsn = self._copies.stored_lsn()
            if stored_lsn >= left_lsn:
                return _Gap(
                    f"the topics of prefix {self._options.prefix} have changes up to {lsn_text(stored_lsn)}, and PostgreSQL "
                    f"failed over to a server that lacks those from {lsn_text(left_lsn)} on (timeline {now.current} instead "
                    f"of {known.timeline})",
                    min(left_lsn, held_lsn) if slot is None or slot.is_lost else left_lsn,
                    stored_lsn,
                    is_ahead=True,
                )
            # A slot that was created or advanced after the failover is past it.
            self._slot_lsn_max = left_lsn if self._slot_lsn_max is None else min(self._slot_lsn_max, left_lsn)
            # Before this run stores anything of the new timeline; of the epoch it notes nothing yet.
            self._note(self._slot_lsn_max, known.stored_lsn, known.epoch, known.gap_lsn)
        if slot is None or slot.is_lost:
            what = "is gone"
            if slot is not None:
                what = (
                    "is lost, because PostgreSQL removed WAL or rows that it needed (max_slot_wal_keep_size)"
                )
            elif left_lsn is not None and self._postgres.server_version < FAILOVER_SINCE:
                what = "is gone, because slots of PostgreSQL before 17 do not outlive a failover"
            return _Gap(f"slot {slot_name} {what}", held_lsn, self._postgres.current_lsn())
        known_lsn = self._slot_lsn_max
        if known.gap_lsn or (known_lsn is not None and slot.confirmed_lsn > known_lsn):
            at_most = (
                ""
                if known_lsn is None
                else f", and the connector has confirmed at most {lsn_text(known_lsn)}"
            )
            return _Gap(
                f"slot {slot_name} is at {lsn_text(slot.confirmed_lsn)}{at_most}: the slot was created again or advanced",
                held_lsn,
                max(known.gap_lsn, slot.confirmed_lsn),
            )
        return None

    def _lost_messages(self) -> list[str]:
        """Return what is lost of a connector without tables, whose changes since its last run are missing."""
        if self._known.epoch < 0 or not self._options.has_messages:
            return []
        if self._options.tables or self._options.snapshot == "again":
            logger.warning("messages that were written while there was no slot are lost")
            return []
        return ["messages"]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
