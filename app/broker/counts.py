"""Totals of what the broker has stored, returned and failed to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Totals since the broker started, as plain integers for the hot path."""

    appended_batches: int = 0
    appended_records: int = 0
    appended_bytes: int = 0
    # Of the batches, those of mirrors.
    copied_batches: int = 0
    fetched_bytes: int = 0
    # Records that broke the contract of their topic.
    contract_refusals: int = 0
    # Requests that ended with an error outside of the tree of errors.
    internal_errors: int = 0
    dead_letters: int = 0
    # Records of share groups that were given up and should have had a dead letter.
    lost_dead_letters: int = 0
