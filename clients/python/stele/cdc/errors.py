"""Errors of the connector, apart from those of the client (``stele.errors``)."""

from __future__ import annotations


class CdcError(Exception):
    """It will not get better by waiting; the text says what to do."""


class Interrupted(Exception):
    """PostgreSQL is not there, or went away; to be tried again."""


class Stopped(Exception):
    """The run was asked to end."""
