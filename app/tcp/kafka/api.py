"""An API of the Kafka protocol: its key, what versions are served, its two messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from . import schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One row of the table that both ApiVersions and the dispatch are made from.

    ``versions`` are the first and the last served; ``flexible_since`` is the
    first version in the encoding of KIP-482, None if there is none.
    """

    key: int
    name: str
    versions: tuple[int, int]
    flexible_since: int | None
    request: type
    response: type

    def serves(self, version: int) -> bool:
        first, last = self.versions
        return first <= version <= last

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since

    def read_request(self, version: int, buffer: schema.Buffer, position: int = 0) -> Any:
        """Raises ``MalformedMessage``.

        Bytes behind the message are let be, as Kafka does: librdkafka leaves three
        of them behind a flexible Metadata request for all topics.
        """
        request, _ = schema.read_message(
            cast("type[Any]", self.request), version, self.is_flexible(version), buffer, position
        )
        return request
