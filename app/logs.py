"""Write log lines as text or JSON, each with the id of its request."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

# Set by a listener while it serves a request, otherwise empty.
request_id: ContextVar[str] = ContextVar("request_id", default="")

LogFormat = Literal["text", "json"]


class TextFormatter(logging.Formatter):
    """Formats lines for people to read."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (name of the base class)
        line = super().formatMessage(record)
        current = request_id.get()
        return f"{line} [request {current}]" if current else line


class JsonFormatter(logging.Formatter):
    """Formats one JSON object per line.

    Fields: ``time`` (RFC 3339), ``level``, ``logger``, ``message``, and if present
    ``request_id`` and ``exception``.
    """

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
    # Its lines per request repeat those of RequestIds.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # A line per forwarded group request.
    logging.getLogger("httpx").setLevel(logging.WARNING)


# ── levels that can be changed while the process runs ──

ROOT = "root"
# Names of Kafka; Python has no TRACE and FATAL, so these map to the nearest levels.
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
    """Return the effective level of every logger."""
    # A copy, because a thread may create a logger meanwhile.
    known = list(logging.root.manager.loggerDict.items())
    loggers = {name: logger for name, logger in known if isinstance(logger, logging.Logger)}
    return {
        name: _level_name(logger.getEffectiveLevel())
        for name, logger in sorted({**loggers, ROOT: logging.root}.items())
    }


def _level_name(level: int) -> str:
    return _LEVEL_NAMES[max((known for known in _LEVEL_NAMES if known <= level), default=logging.DEBUG)]


def set_level(logger: str, level: str | None) -> None:
    """Set the level of ``logger``, until the next start.

    ``level`` is a key of ``LEVELS``, or None to inherit it.
    """
    known = logging.root if logger == ROOT else logging.getLogger(logger)
    known.setLevel(logging.NOTSET if level is None else LEVELS[level])
