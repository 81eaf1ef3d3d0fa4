"""Confirmation of stream positions, up to which PostgreSQL may remove WAL."""

from __future__ import annotations

import time

from ..status import Status
from .replication import Stream

# The shortest interval of confirmations while changes arrive.
CONFIRM_S = 0.1


class Feedback:
    """Owns the stream, and confirms in time for PostgreSQL's ``wal_sender_timeout``.

    ``stream`` is None until the slot is opened, and in a run without tables. Everything
    before ``handled_lsn`` was passed to the writer, and is stored once the writer
    ``is_stored``. The last confirmed position is ``Status.confirmed_lsn``.
    """

    def __init__(self, status: Status, *, keep_alive_s: float) -> None:
        self.stream: Stream | None = None
        self.handled_lsn = 0
        self.keep_alive_s = keep_alive_s
        self._status = status
        self._confirmed_s = 0.0

    def may_confirm_too_much(self, lsn: int) -> bool:
        """Return whether psycopg2 may confirm unsynced changes after a message at ``lsn``.

        On a keepalive, psycopg2 confirms its LSN by itself if the last message is at or
        before the confirmed position, as the changes of an old transaction are. No ended
        transaction may be unsynced then.
        """
        return lsn <= self._status.confirmed_lsn < self.handled_lsn

    def confirm(self, *, force: bool) -> None:
        """Confirm the handled position if that is due; the writer must be empty."""
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
        """Confirm the last position again if that is ``keep_alive_s`` ago."""
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
