"""Errors of the connector, apart from those of the client (``stele.errors``)."""

from __future__ import annotations


class CdcError(Exception):
    """A permanent failure; the message says how to fix it."""


class Interrupted(Exception):
    """PostgreSQL is unavailable or the connection broke; the run is retried."""


class TransactionTimedOut(Interrupted):
    """The broker has aborted a transaction, because it was open for too long."""


class StreamedMessageError(Interrupted):
    """A message may be of a subtransaction that was rolled back; the next run reads without streaming."""


class QueryTimedOutError(Interrupted):
    """A query took longer than it may, or somebody cancelled it."""


class TablesRequestedError(Interrupted):
    """Other tables are to be followed; the next run does."""


class Stopped(Exception):
    """The connector was stopped."""
