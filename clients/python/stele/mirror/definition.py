"""What a mirror copies, from where or to where: the definition that the broker passes to it as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from ..wire.notation import parse_whole
from .errors import MirrorError

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\s:,\[\]/@]+):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """Where a broker of a cluster listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Offsets = Literal["equal", "translate"]


class _Document(msgspec.Struct, forbid_unknown_fields=True, rename={"origin": "from"}):
    name: str
    topics: str
    origin: str | None = None
    to: str | None = None
    groups: str | None = None
    acls: bool = False
    source: dict[str, str] = {}
    target: dict[str, str] = {}
    offsets: Offsets = "equal"
    rate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """``servers`` are those of the other cluster, to which an outward mirror copies.

    ``rate`` is in bytes per second; ``properties`` are those of the connections to the other cluster as they were given,
    with references to secrets.
    """

    name: str
    is_outward: bool
    servers: tuple[Address, ...]
    topics: re.Pattern[str]
    groups: re.Pattern[str] | None
    acls: bool
    properties: dict[str, str]
    offsets: Offsets
    rate: int | None

    @classmethod
    def parse(cls, text: str) -> Definition:
        """Raises ``MirrorError``, which names the field."""
        try:
            document = msgspec.json.decode(text, type=_Document)
        except (msgspec.MsgspecError, UnicodeEncodeError) as error:
            raise MirrorError(f"the definition of the mirror is not valid: {error}") from error
        if document.rate is not None and document.rate < 1:
            raise MirrorError("rate must be at least 1 byte per second")
        servers, others = document.origin, document.to
        if (servers is None) == (others is None):
            raise MirrorError("the definition of the mirror needs either from or to")
        return cls(
            name=document.name,
            is_outward=others is not None,
            servers=addresses(servers or others or ""),
            topics=_pattern("topics", document.topics),
            groups=None if document.groups is None else _pattern("groups", document.groups),
            acls=document.acls,
            properties=document.target if servers is None else document.source,
            offsets=document.offsets,
            rate=document.rate,
        )


def addresses(text: str) -> tuple[Address, ...]:
    """Parse ``HOST:PORT,…``. Raises ``MirrorError``."""
    found: list[Address] = []
    for part in text.split(","):
        match = _ADDRESS.fullmatch(part.strip())
        port = parse_whole(match["port"], 65535) if match else None
        if match is None or not port:
            raise MirrorError(
                f"from or to must be HOST:PORT of brokers, separated by commas, not {part[:100]!r}"
            )
        found.append(Address(match["host"].strip("[]"), port))
    return tuple(found)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise MirrorError(f"{name} is not a regular expression: {error}") from error
