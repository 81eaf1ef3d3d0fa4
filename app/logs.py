"""Log lines for people, or as JSON for machines, each with the id of the request that it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

# Set by a listener while it serves a request; empty outside of one.
request_id: ContextVar[str] = ContextVar("request_id", default="")

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the base's name)
        line = super().formatMessage(record)
        current = request_id.get()
        return f"{line} [request {current}]" if current else line


class JsonFormatter(logging.Formatter):
    """One object a line: ``time`` (RFC 3339), ``level``, ``logger``, ``message``; ``request_id`` and ``exception``
    where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, str] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if current := request_id.get():
            line["request_id"] = current
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(*, level: str, log_format: LogFormat) -> None:
    """Write the log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # Of requests it says what our own line says.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


# ── levels, changed while the process runs ──

ROOT = "root"
# Kafka's names; FATAL and TRACE are those next to them here.
LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_LEVEL_NAMES = {level: name for name, level in LEVELS.items() if name != "TRACE"}


def levels() -> dict[str, str]:
    """The level of every logger there is, its own or the one it inherits."""
    # A copy, for a thread may make a logger meanwhile.
    known = list(logging.root.manager.loggerDict.items())
    loggers = {name: logger for name, logger in known if isinstance(logger, logging.Logger)}
    return {
        name: _level_name(logger.getEffectiveLevel())
        for name, logger in sorted({**loggers, ROOT: logging.root}.items())
    }


def _level_name(level: int) -> str:
    return _LEVEL_NAMES[max((known for known in _LEVEL_NAMES if known <= level), default=logging.DEBUG)]


def set_level(logger: str, level: str | None) -> None:
    """Have ``logger`` write from ``level`` (a key of ``LEVELS``) on; None: what it inherits. Until the next start."""
    known = logging.root if logger == ROOT else logging.getLogger(logger)
    known.setLevel(logging.NOTSET if level is None else LEVELS[level])
