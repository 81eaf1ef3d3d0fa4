"""Log logins, changes, decisions and operators' aborts as lines of JSON.

They go to the logger ``stele.audit`` or to a file.

JSON escapes control characters, so no name that a client sends can forge a line. Failed
logins are warnings, successful ones are information. Denied requests are information,
allowed ones are for debugging.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Protocol

from .principal import Principal

logger = logging.getLogger("stele.audit")

_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection: its listener, its address, and the host of that alone."""

    listener: str
    address: str
    host: str


def log_login(peer: Peer, *, principal: str, mechanism: str, is_allowed: bool, reason: str = "") -> None:
    """Log one login. ``principal`` is who the client is, or claimed to be."""
    _log(
        logging.INFO if is_allowed else logging.WARNING,
        peer,
        principal=principal,
        operation="login",
        mechanism=mechanism,
        verdict="allowed" if is_allowed else "denied",
        reason=reason,
    )


def log_change(peer: Peer, *, principal: str, operation: str, resource: str) -> None:
    """Log a change of users, API keys or quotas, or the abort of a transaction."""
    _log(logging.INFO, peer, principal=principal, operation=operation, resource=resource, verdict="allowed")


class Accessor(Protocol):
    """The client that a decision is about."""

    @property
    def listener(self) -> str: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def host(self) -> str: ...


def log_decision(by: Accessor, action: str, name: str, *, is_allowed: bool, rule: str) -> None:
    """Log one decision; ``rule`` is what decided, empty if no rule applies."""
    level = logging.DEBUG if is_allowed else logging.INFO
    if logger.isEnabledFor(level):
        _log(
            level,
            Peer(by.listener, by.host, by.host),
            principal=str(by.principal),
            operation=action,
            resource=name,
            verdict="allowed" if is_allowed else "denied",
            rule=rule,
        )


def _log(level: int, peer: Peer, **fields: str) -> None:
    if logger.isEnabledFor(level):
        line = {"listener": peer.listener, "peer": peer.address, **fields}
        logger.log(level, "%s", json.dumps({k: v[:_CHARACTERS_MAX] for k, v in line.items() if v}))


# ── a file of its own ──


class AuditFile(logging.handlers.WatchedFileHandler):
    """Appends lines to a file that only its owner can read.

    The file is opened again when it has been moved or deleted, so logrotate needs no signal.
    """

    def __init__(self, path: Path) -> None:
        """Open the file. Raises OSError."""
        super().__init__(path, encoding="utf-8")
        self.setFormatter(_WithTime())

    def _open(self) -> TextIOWrapper:
        def open_private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, "a", encoding="utf-8", opener=open_private)


class _WithTime(logging.Formatter):
    """Puts ``time`` (RFC 3339) in front of the fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f'{{"time": "{at.replace("+00:00", "Z")}", {record.getMessage()[1:]}'


def write_to(path: Path) -> None:
    """Write the lines to ``path`` instead of the log, whatever its level is.

    Raises OSError.
    """
    logger.addHandler(AuditFile(path))
    logger.setLevel(logging.INFO)
    logger.propagate = False
