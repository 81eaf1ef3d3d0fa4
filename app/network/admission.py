"""Admits connections within a listener's limit and the limit on open files.

Connections and logs share the process's limit on open files. Once it is reached, a log
cannot open its next segment, which stops the log directory. Connections are therefore
refused earlier. A new socket gets the lowest free file descriptor, which shows how many
files are open.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

# The share of open files that connections leave to the logs: for new segments, reads, compaction, databases.
_RESERVED_SHARE = 8
_RESERVED_MIN = 64
# The share that partitions leave to all others: half of it to connections alone.
_RESERVED_OF_LOGS_SHARE = 4
# Where the system has no limit.
_OPEN_FILES_MAX = 1 << 20
# Refused connections that may stay to read why once files are scarce. A share of those reserved, whatever the listener.
_SCARCE_STAYS_MAX = 16
_LOG_EVERY_S = 10.0


def raise_open_files_limit() -> int:
    """Raise the soft limit on open files to the hard one; return the effective one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files_limit()


def open_files_for_connections(limit: int) -> int:
    """Return how many files may be open when a connection is admitted under ``limit``."""
    return max(1, limit - max(_RESERVED_MIN, limit // _RESERVED_SHARE))


def open_files_for_partitions(limit: int) -> int:
    """Return how many partitions may be open under ``limit``.

    Each has a file that it appends to.
    """
    return max(1, limit - max(2 * _RESERVED_MIN, limit // _RESERVED_OF_LOGS_SHARE))


def open_files_limit() -> int:
    """Return how many files the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft


def warn_of_few_files(limit: int, *, connections_max: int, partitions_max: int) -> None:
    """Warn if ``limit`` allows fewer connections or partitions than the settings."""
    partitions = open_files_for_partitions(limit)
    if partitions < partitions_max:
        logger.warning(
            "the process may open %d files, so the broker has %d partitions on disk at most, although partitions_max "
            "is %d; raise the limit (ulimit -Hn, LimitNOFILE= of systemd) or lower partitions_max",
            limit,
            partitions,
            partitions_max,
        )
    connections = open_files_for_connections(limit)
    if connections < connections_max:
        logger.warning(
            "the process may open %d files, so each listener refuses connections once %d files are open, although "
            "connections_max is %d; raise the limit (ulimit -Hn, LimitNOFILE= of systemd) or lower connections_max",
            limit,
            connections,
            connections_max,
        )


class Admission:
    """Decides which connections one listener accepts; counts and logs refusals."""

    def __init__(
        self,
        listener: str,
        *,
        connections_max: int,
        open_files_max: int,
        per_address_max: int | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refused = 0
        self._listener = listener
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._open_files_max = open_files_max
        self._clock_s = clock_s
        self._admitted = 0
        self._of_address: dict[str, int] = {}
        self._unlogged = 0
        self._logged_s = -_LOG_EVERY_S

    def admit(self, host: str, file_number: int) -> str | None:
        """Admit a connection from ``host``, or return why it is refused.

        ``file_number`` is that of its socket. ``leave`` undoes an admission.
        """
        of_address = self._of_address.get(host, 0)
        if self._admitted >= self._connections_max:
            reason = "too many connections; close one, or raise connections_max"
        elif self._per_address_max is not None and of_address >= self._per_address_max:
            reason = "too many connections from this address; close one, or raise connections_per_address_max"
        elif file_number >= self._open_files_max:
            reason = "too many open files; raise the broker's limit of open files (ulimit -n)"
        else:
            self._admitted += 1
            self._of_address[host] = of_address + 1
            return None
        self.refused += 1
        self._unlogged += 1
        now_s = self._clock_s()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            logger.warning(
                "%s: refused %d connections, the last from %s, with %d open: %s",
                self._listener,
                self._unlogged,
                host,
                self._admitted,
                reason,
            )
            self._unlogged, self._logged_s = 0, now_s
        return reason

    def leave(self, host: str) -> None:
        """Make room for another connection after one from ``host`` was closed."""
        self._admitted -= 1
        left = self._of_address[host] - 1
        if left:
            self._of_address[host] = left
        else:
            del self._of_address[host]

    def may_stay(self, file_number: int) -> bool:
        """Return whether a refused connection may stay for a moment, to read why.

        The files that it would take belong to the logs.
        """
        return file_number < self._open_files_max + _SCARCE_STAYS_MAX
