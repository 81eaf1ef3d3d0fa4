"""Confirms positions of the stream to PostgreSQL: up to where its WAL is no longer needed here."""

from __future__ import annotations

import time

from .replication import Stream
from .status import Status

# The shortest time between two confirmations while changes arrive.
CONFIRM_S = 0.1


class Feedback:
    """Owns the stream, and confirms in time for PostgreSQL's ``wal_sender_timeout``.

    ``stream`` is None until the slot is opened, and in a run without tables. ``handled_lsn``:
    everything before it was given to the writer; it is safe once the writer is flushed.
    The position that was confirmed last is ``Status.confirmed_lsn``.
    """

    def __init__(self, status: Status, *, keep_alive_s: float) -> None:
        self.stream: Stream | None = None
        self.handled_lsn = 0
        self.keep_alive_s = keep_alive_s
        self._status = status
        self._confirmed_s = 0.0

    def may_confirm_too_much(self, lsn: int) -> bool:
        """Whether psycopg2 may confirm unsynced changes by itself, after a message at ``lsn``.

        psycopg2 takes it that all is safe up to a keepalive's LSN when the message before
        it stands at or before what was confirmed last, as changes of an old transaction do:
        then nothing that has ended may be unsynced.
        """
        return lsn <= self._status.confirmed_lsn < self.handled_lsn

    def confirm(self, *, force: bool) -> None:
        """Confirm all that is handled, if that is due; the writer must be empty."""
        if self.stream is None:
            return
        now_s = time.monotonic()
        lsn = max(self.handled_lsn, self._status.confirmed_lsn)
        since_s = now_s - self._confirmed_s
        if (
            force
            or (lsn > self._status.confirmed_lsn and since_s >= CONFIRM_S)
            or since_s >= self.keep_alive_s
        ):
            self.stream.confirm(lsn)
            self._status.confirmed_lsn = lsn
            self._confirmed_s = now_s

    def keep_alive(self) -> None:
        """Confirm the last position again if ``keep_alive_s`` have passed since."""
        now_s = time.monotonic()
        if self.stream is not None and now_s - self._confirmed_s >= self.keep_alive_s:
            self.stream.confirm(self._status.confirmed_lsn)
            self._confirmed_s = now_s

    def repeat(self) -> None:
        """Confirm the last position again; does nothing before the first confirmation."""
        if self.stream is not None and self._confirmed_s:
            self.stream.confirm(self._status.confirmed_lsn)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
