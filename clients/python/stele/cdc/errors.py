"""Errors of the connector, apart from those of the client (``stele.errors``)."""

from __future__ import annotations


class CdcError(Exception):
    """A permanent failure; the message says how to fix it."""


class GapError(CdcError):
    """Changes may be missing between two LSNs; it takes a decision to go on."""

    def __init__(self, reason: str, from_lsn: int, to_lsn: int) -> None:
        super().__init__(reason)
        self.from_lsn = from_lsn
        self.to_lsn = to_lsn


class Interrupted(Exception):
    """PostgreSQL is unavailable or the connection broke; the run is retried."""


class TransactionTimedOut(Interrupted):
    """The broker has aborted a transaction, because it was open for too long."""


class StreamedMessageError(Interrupted):
    """A message may be of a subtransaction that was rolled back; the next run reads without streaming."""


class TableLockedError(Interrupted):
    """Another session holds a lock on a table, for example to alter it, and the query was not to wait for it."""


class QueryTimedOutError(Interrupted):
    """A query took longer than it may, or somebody cancelled it."""


class TablesRequestedError(Interrupted):
    """Other tables are to be followed; the next run does."""


class Stopped(Exception):
    """The connector was stopped."""
