"""An API of the Kafka protocol.

Its key, the versions that are served, its two messages.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from .. import schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API, as ApiVersions and dispatch need it.

    ``versions`` are the first and the last served; ``flexible_since`` is the
    first version in the encoding of KIP-482, None if there is none. An API that is
    refused whatever is in a request does without ``reads_request``. With ``has_plain_response_header`` the header of
    the response is not flexible in any version (KIP-511).
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible_since: int | None
    request: type[Any]
    response: type[Any]
    reads_request: bool = True
    has_plain_response_header: bool = False

    def serves(self, version: int) -> bool:
        first, last = self.versions
        return first <= version <= last

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since

    def read_request(self, version: int, buffer: schema.Buffer, position: int = 0) -> Any:
        """Decode the request that begins at ``position``.

        Bytes after the message are ignored, as in Kafka: librdkafka sends three of
        them after a flexible Metadata request for all topics.

        Raises:
            MalformedMessage: the bytes are no such request.
        """
        if not self.reads_request:
            return self.request()
        request, _ = schema.read_message(self.request, version, self.is_flexible(version), buffer, position)
        return request

    def read_request_in_steps(
        self, version: int, buffer: schema.Buffer, position: int = 0
    ) -> Generator[None, None, Any]:
        """``read_request`` in steps that are short enough for a turn of the loop."""
        if not self.reads_request:
            return self.request()
        flexible = self.is_flexible(version)
        request, _ = yield from schema.read_in_steps(self.request, version, flexible, buffer, position)
        return request
