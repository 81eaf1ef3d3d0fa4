"""Errors of the Iceberg writer."""

from __future__ import annotations


class IcebergError(Exception):
    """A table cannot be written until a person changes what the message names."""


class CommitConflict(Exception):
    """Another process has committed to the table; the next turn goes on from what it has committed."""
