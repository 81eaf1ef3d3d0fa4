"""Log the requests and responses of Kafka connections, one line each.

Their bytes are logged, too, if the settings ask for it.

``stele serve --trace-connections`` turns it on, ``--hex`` adds the frames as
Wireshark's *import from hex dump* takes them (ADR-0014).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from stele.wire.kafka.headers import RequestHead

logger = logging.getLogger("stele.trace")

# A produce may be megabytes; its beginning is what people look at.
HEX_BYTES_MAX = 4096
_LINE_BYTES = 16
# Passwords, tokens and what they can be guessed from: SaslAuthenticate, AlterUserScramCredentials.
_SECRET_APIS = frozenset({36, 51})


class RequestTracer(Protocol):
    """Observes each request when it begins, and its response when that is written."""

    def request(self, peer: str, api: str, head: RequestHead, client_id: str, frame: memoryview) -> None: ...
    def response(
        self, peer: str, api: str, head: RequestHead, size: int, parts: Sequence[bytes | bytearray]
    ) -> None: ...
    def unanswered(self, peer: str, api: str, head: RequestHead) -> None:
        """Observe a request that has ended and whose client wants no response."""
        ...

    def closed(self, peer: str) -> None:
        """Observe the end of a connection, after which no request of it gets a response."""
        ...


class Tracer:
    """Writes to the log. Implements ``RequestTracer``."""

    def __init__(self, *, with_hex: bool) -> None:
        self._with_hex = with_hex

    def request(self, peer: str, api: str, head: RequestHead, client_id: str, frame: memoryview) -> None:
        logger.info(
            "%s > %s v%d correlation=%d client=%r size=%d%s",
            peer,
            api,
            head.version,
            head.correlation_id,
            client_id,
            len(frame),
            self._hex(head, [frame]),
        )

    def response(
        self, peer: str, api: str, head: RequestHead, size: int, parts: Sequence[bytes | bytearray]
    ) -> None:
        logger.info(
            "%s < %s v%d correlation=%d size=%d%s",
            peer,
            api,
            head.version,
            head.correlation_id,
            size - 4,
            self._hex(head, parts, skip=4),
        )

    def unanswered(self, peer: str, api: str, head: RequestHead) -> None:
        logger.info("%s < %s v%d correlation=%d none", peer, api, head.version, head.correlation_id)

    def closed(self, peer: str) -> None:
        logger.info("%s closed", peer)

    def _hex(
        self, head: RequestHead, parts: Sequence[bytes | bytearray | memoryview], *, skip: int = 0
    ) -> str:
        if not self._with_hex:
            return ""
        if head.api_key in _SECRET_APIS:
            return "\n# not shown, because it carries credentials"
        shown = bytearray()
        for part in parts:
            shown += part[: HEX_BYTES_MAX + skip - len(shown)]
        return "\n" + hex_dump(bytes(shown[skip:]), total=sum(map(len, parts)) - skip)


def hex_dump(data: bytes, *, total: int) -> str:
    """Format ``data`` as offset, bytes and text, sixteen bytes per line.

    The last line has the number of bytes left out of ``total``.
    """
    lines = [
        f"{at:06x}  {data[at : at + _LINE_BYTES].hex(' '):<47}  {_text(data[at : at + _LINE_BYTES])}"
        for at in range(0, len(data), _LINE_BYTES)
    ]
    if total > len(data):
        lines.append(f"# {total - len(data)} more bytes")
    return "\n".join(lines)


def _text(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
