"""Conversion of messages of ``pg_logical_emit_message`` to records. No I/O.

The prefix of a message names the topic, and may name a key or a JSON object:

===========================================  ==============================================
``stele:orders``                             a record without a key
``stele:orders:41``                          the key is ``41``, all that follows the colon
``stele:orders:{"key": 41, "headers": {}}``  ``key``, ``headers``, and ``tombstone``: no value
===========================================  ==============================================

The value is the content of the message, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ..decoding.pgoutput import LogicalMessage
from .events import Headers

PREFIX = "stele:"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Of a refused message, which may have 1 GB; a record has no more than 1 MiB over HTTP.
_PIECE_BYTES = 512 * 1024
_SHOWN_CHARS = 2048


class RefusedMessageError(ValueError):
    """A message that no topic can have; the text says why."""


class Outgoing(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Extra(msgspec.Struct, forbid_unknown_fields=True):
    key: Any = None
    headers: dict[str, Any] = {}
    tombstone: bool = False


def outgoing(message: LogicalMessage) -> Outgoing:
    """Return the record of a message whose prefix begins with ``PREFIX``.

    Raises:
        RefusedMessageError: the prefix names no topic, or its second part is no valid JSON object.
    """
    topic, colon, second = message.prefix.removeprefix(PREFIX).partition(":")
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise RefusedMessageError(
            f"{topic[:_SHOWN_CHARS]!r} is not the name of a topic, which has 1 to 249 letters, digits, . _ and -"
        )
    if not second.startswith("{"):
        return Outgoing(topic, second.encode() if colon else None, message.content, [])
    try:
        extra = msgspec.json.decode(second, type=_Extra)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise RefusedMessageError(
            f"what follows the topic is not a JSON object with key, headers and tombstone ({error})"
        ) from None
    headers: Headers = [(name, _bytes(value)) for name, value in extra.headers.items()]
    return Outgoing(topic, _bytes(extra.key), None if extra.tombstone else message.content, headers)


def refused(message: LogicalMessage, reason: str) -> Iterator[tuple[bytes, Headers]]:
    """Yield the values and headers of the records that keep a refused message."""
    content, prefix = message.content, message.prefix[:_SHOWN_CHARS]
    pieces = max(1, -(-len(content) // _PIECE_BYTES))
    for number in range(pieces):
        headers: Headers = [
            ("prefix", prefix.encode()),
            ("reason", reason.encode("utf-8", "backslashreplace")),
            ("part", b"%d/%d" % (number + 1, pieces)),
        ]
        yield content[number * _PIECE_BYTES : (number + 1) * _PIECE_BYTES], headers


def _bytes(value: Any) -> bytes | None:
    """Return text as it is, and what else JSON has as JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)
