"""Errors of the storage: of the disk and of the files on it, or of a storage that is elsewhere."""

from __future__ import annotations

import errno
import resource
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
    """There is no space for what a request would write; nothing of it was done."""

    def __init__(self, path: Path, cause: OSError | str) -> None:
        super().__init__(
            f"no space left for {path} ({cause.strerror if isinstance(cause, OSError) else cause}); lower retention, "
            "delete records or topics, or free space on the disk, then try again; acknowledged records are safe"
        )
        self.path = path


class StorageLimitReached(StorageError):
    """A limit of the process, the system or the file system refused the request.

    Nothing of it was done.
    """

    def __init__(self, path: Path, cause: OSError) -> None:
        advice = _ADVICE.get(cause.errno or 0, "raise the limit")
        if cause.errno == errno.EMFILE:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            advice = f"the process may open {limit} files: {advice}"
        super().__init__(
            f"{path} cannot be used ({cause.strerror}); {advice}, then try again; acknowledged records are safe"
        )
        self.path = path


_ADVICE = {
    errno.EMFILE: "raise its limit (ulimit -n, LimitNOFILE= of systemd), or use fewer partitions and connections",
    errno.ENFILE: "raise the limit of the system (sysctl fs.file-max), or end other programs",
    errno.ENOMEM: "add memory, or end other programs",
    errno.ENAMETOOLONG: "use a shorter name or a data directory with a shorter path",
    errno.EMLINK: "use fewer partitions, or a file system that allows more directories",
}


class StorageUnavailable(StorageError):
    """A storage that is elsewhere cannot be reached, or takes no more for now."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} failed because the storage is not available ({reason}); "
            "acknowledged records are safe; try again"
        )
        self.what = what
        self.reason = reason


class NotReplicated(StorageError):
    """No replica has, or will have, what a producer wants in one (``stele.acks=replicated``)."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; GET /v1/replica says how it is. Records that were appended stay in the log"
        )


class LogDirFailed(StorageError):
    """A write or sync failed, so nothing more is accepted (fsyncgate, ADR-0003)."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"the log at {path} stopped after a disk error ({cause}); "
            "repair or replace the disk, then restart the broker"
        )
        self.path = path
        self.cause = cause


class CatalogFailed(StorageError):
    """A change of topics, configurations, producers or users was not stored.

    All earlier ones are safe.
    """

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"the catalog {path} cannot be read or written ({cause}); repair the disk, then try again, and restart "
            "the broker if the error remains"
        )
        self.path = path
        self.cause = cause


class GroupStoreFailed(StorageError):
    """The change that failed was not stored; all earlier ones are safe."""

    def __init__(self, path: Path, cause: str, *, is_full: bool = False) -> None:
        super().__init__(
            f"consumer groups cannot be stored in {path} ({cause}); free space or repair the disk, "
            "then try again, and restart the broker if the error remains"
        )
        self.path = path
        self.cause = cause
        # There is no space for it.
        self.is_full = is_full


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
