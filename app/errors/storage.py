"""Errors of the storage.

Of the disk and of the files on it, or of a storage that is elsewhere.
"""

from __future__ import annotations

from pathlib import Path

from .base import SteleError


class StorageError(SteleError):
    """The storage failed, or what is in it is not valid."""


class CorruptLog(StorageError):
    """Stored bytes differ from those written; ``next_offset`` is readable again."""

    def __init__(self, *, path: Path, position: int, offset: int, next_offset: int, reason: str) -> None:
        super().__init__(
            f"{path} is corrupt at byte {position}: {reason}; offsets {offset} to {next_offset - 1} "
            f"cannot be read; continue at {next_offset}, or restore the file from a backup"
        )
        self.path = path
        self.position = position
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason


class StorageFull(StorageError):
    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(
            f"no space left to append to {path} ({cause.strerror}); "
            "free space or lower retention, then produce again; acknowledged records are safe"
        )
        self.path = path


class StorageUnavailable(StorageError):
    """A storage that is elsewhere cannot be reached, or takes no more for now."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} failed because the storage is not available ({reason}); "
            "acknowledged records are safe; try again"
        )
        self.what = what
        self.reason = reason


class LogDirFailed(StorageError):
    """A write or sync failed, so nothing more is accepted (fsyncgate, ADR-0003)."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"the log at {path} stopped after a disk error ({cause}); "
            "repair or replace the disk, then restart the broker"
        )
        self.path = path
        self.cause = cause


class GroupStoreFailed(StorageError):
    """The change that failed was not stored; all earlier ones are safe."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"consumer groups cannot be stored in {path} ({cause}); free space or repair the disk, "
            "then try again, and restart the broker if the error remains"
        )
        self.path = path
        self.cause = cause


class BrokerIdTaken(StorageError):
    """Two brokers of a cluster were started with one id."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(
            f"a live broker of this cluster has the id {broker_id}; give this one another --broker-id "
            "(STELE_BROKER_ID)"
        )
        self.broker_id = broker_id


class DataDirLocked(StorageError):
    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"the data directory {path} is in use by another broker{owner}; "
            "stop it, or give this broker another --data-dir"
        )
        self.path = path
