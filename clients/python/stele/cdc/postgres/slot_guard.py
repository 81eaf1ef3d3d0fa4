"""Guard for the WAL that the slot holds back: a limit, and what to do beyond it."""

from __future__ import annotations

import logging

from ..errors import CdcError
from ..options import CdcOptions
from ..status import Status
from .catalog import Postgres

logger: logging.Logger = logging.getLogger("stele.cdc")


class SlotGuard:
    """Checks the lag of the slot, also before each attempt, because the broker may be down for long.

    Outlives runs: ``pauses_copies`` says whether they may copy beside the stream.
    """

    def __init__(self, options: CdcOptions, status: Status) -> None:
        self._options = options
        self._status = status
        self.pauses_copies: bool = False

    def check(self, lag_bytes: int, *, is_copying: bool = False) -> bool:
        """Act if the slot holds back too much; return whether it must be dropped, by a caller that can."""
        limit, status = self._options.max_slot_lag, self._status
        if not limit:
            return False
        is_beyond = lag_bytes > limit
        if is_beyond != status.exceeds_max_lag:
            status.exceeds_max_lag = is_beyond
            logger.log(
                logging.WARNING if is_beyond else logging.INFO,
                "slot %s holds back %d bytes of WAL; --max-slot-lag is %d",
                self._options.slot,
                lag_bytes,
                limit,
            )
        if self._options.slot_lag_action == "pause-copies":
            if is_beyond and is_copying and not self.pauses_copies:
                self.pauses_copies = True
                logger.warning("copies are paused until the slot holds back less")
            # Only at a half, so that they do not pause again at once.
            elif self.pauses_copies and lag_bytes <= limit // 2:
                self.pauses_copies = False
                logger.info("paused copies go on")
        return is_beyond and self._options.slot_lag_action == "drop-slot"

    def drop(self, postgres: Postgres, lag_bytes: int) -> CdcError:
        """Drop the slot, which nothing may read; return what to end with. Raises CdcError, Interrupted."""
        postgres.drop_slot()
        return CdcError(
            f"slot {self._options.slot} held back {lag_bytes} bytes of WAL, more than --max-slot-lag "
            f"{self._options.max_slot_lag}, and was dropped; its changes are lost: run once with --snapshot again, "
            "which copies the tables again"
        )
