"""Which mirrors there are: what each copies, from where or to where. The catalog keeps them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..cluster.catalog import ConfigRecord
from ..errors import InvalidRequest, UnknownMirror
from .catalog_thread import CatalogThread

# Of the rows of the catalog's table of configurations.
MIRROR_KIND = "mirror"
MIRRORS_MAX = 20
# In a cluster, the broker with this lease runs all mirrors.
LEASE = "mirrors"
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_SERVER = re.compile(r"(?:[a-zA-Z0-9._-]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):[0-9]{1,5}")
_SERVERS_MAX = 50
_PATTERN_CHARACTERS_MAX = 1000
_PROPERTIES_MAX = 50
_VALUE_CHARACTERS_MAX = 4000
# In the name of a property whose value must not lie in the catalog, nor be shown; also of one that nobody knows.
_SECRET = re.compile(r"password|secret|token|jaas")
# Whoever may make a mirror may send what these name to any server, so only what is meant for mirrors can be named.
_REFERENCE = re.compile(r"\$\{(?:env:STELE_MIRROR_SECRET_[A-Z0-9_]{1,100}|file:[a-zA-Z0-9._-]{1,255})\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorDefinition:
    """What a mirror copies.

    ``servers`` are ``HOST:PORT`` of the other cluster, separated by commas: the source, or the target if it is outward.
    ``topics`` and ``groups`` are regular expressions of whole names, ``groups`` None for none. ``source`` has the
    properties of the connection to the other cluster, by the names of Kafka's clients, and ``rate_bytes_s`` is the limit
    of all copying, None for none. ``offsets`` says whether outward copies keep theirs.
    """

    name: str
    servers: str
    topics: str
    groups: str | None = None
    acls: bool = False
    source: Mapping[str, str] = field(default_factory=dict[str, str])
    rate_bytes_s: int | None = None
    is_paused: bool = False
    is_outward: bool = False
    offsets: str = "equal"

    def as_document(self) -> dict[str, Any]:
        """Return what the API shows, and what the process of the mirror gets."""
        return {
            "name": self.name,
            "from": None if self.is_outward else self.servers,
            "to": self.servers if self.is_outward else None,
            "topics": self.topics,
            "groups": self.groups,
            "acls": self.acls,
            "source": {} if self.is_outward else dict(self.source),
            "target": dict(self.source) if self.is_outward else {},
            "offsets": self.offsets,
            "rate": self.rate_bytes_s,
        }

    def check(self) -> None:
        """Raises ``InvalidRequest``: it says what to change."""
        # Browsers take the last two for steps of the path.
        if not _NAME.fullmatch(self.name) or self.name in (".", ".."):
            raise InvalidRequest(
                f"{self.name[:100]!r} cannot be the name of a mirror: use letters, digits, '.', '_' and '-', at most 100"
            )
        servers = self.servers.split(",")
        for server in servers:
            if not _SERVER.fullmatch(server.strip()) or int(server.rpartition(":")[2]) > 65535:
                raise InvalidRequest(f"{server.strip()[:100]!r} is no HOST:PORT of a Kafka broker")
        if len(servers) > _SERVERS_MAX:
            raise InvalidRequest(
                f"the mirror has {len(servers)} servers; {_SERVERS_MAX} are enough to begin with"
            )
        for what, pattern in (("topics", self.topics), ("groups", self.groups)):
            if pattern is not None:
                _check_pattern(what, pattern)
        if len(self.source) > _PROPERTIES_MAX:
            raise InvalidRequest(f"the connection has more than {_PROPERTIES_MAX} properties")
        if self.is_outward and self.acls:
            raise InvalidRequest("access rules and quotas are not copied to another cluster; leave out acls")
        if self.offsets not in ("equal", "translate"):
            raise InvalidRequest("offsets must be equal or translate")
        if not self.is_outward and self.offsets != "equal":
            raise InvalidRequest("copies here always have equal offsets; leave out offsets")
        for key, value in self.source.items():
            _check_property(key, value)
        if self.rate_bytes_s is not None and self.rate_bytes_s < 1024:
            raise InvalidRequest("the rate is in bytes per second, 1024 or more")


def _check_pattern(what: str, pattern: str) -> None:
    if not pattern or len(pattern) > _PATTERN_CHARACTERS_MAX:
        raise InvalidRequest(
            f"{what} must be a regular expression of 1 to {_PATTERN_CHARACTERS_MAX} characters"
        )
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidRequest(f"{what} is no regular expression: {error}") from error


def _check_property(key: str, value: str) -> None:
    if len(key) > 200 or len(value) > _VALUE_CHARACTERS_MAX:
        raise InvalidRequest(f"property {key[:80]!r} is too long")
    if "${" in value and not _REFERENCE.fullmatch(value):
        raise InvalidRequest(
            f"property {key!r} must be a value, or wholly ${{env:STELE_MIRROR_SECRET_…}}, or ${{file:NAME}} of "
            "a file in the directory STELE_MIRROR_SECRETS_DIR"
        )
    if _SECRET.search(key.lower()) and not _REFERENCE.fullmatch(value):
        raise InvalidRequest(
            f"{key} is a secret, which is not stored: give ${{env:STELE_MIRROR_SECRET_…}}, a variable of the broker's "
            "environment, or ${file:NAME}, a file in its directory STELE_MIRROR_SECRETS_DIR"
        )


class MirrorDefinitions:
    """The definitions of one broker."""

    def __init__(self, catalog: CatalogThread) -> None:
        self._catalog = catalog
        self._known: dict[str, MirrorDefinition] = {}
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Load all definitions; again, because other brokers may have changed some."""
        async with self._lock:
            records = await self._catalog.run(lambda catalog: catalog.configs())
            self._known = {
                record.entity: MirrorDefinition(**json.loads(record.configs["definition"]))
                for record in records
                if record.kind == MIRROR_KIND
            }

    def all(self) -> list[MirrorDefinition]:
        return [self._known[name] for name in sorted(self._known)]

    def get(self, name: str) -> MirrorDefinition:
        """Raises ``UnknownMirror``."""
        definition = self._known.get(name)
        if definition is None:
            raise UnknownMirror(name)
        return definition

    async def put(self, definition: MirrorDefinition) -> None:
        """Store a definition, in place of one of the same name. Raises ``InvalidRequest``, and as the catalog does."""
        definition.check()
        if definition.name not in self._known and len(self._known) >= MIRRORS_MAX:
            raise InvalidRequest(
                f"there are {MIRRORS_MAX} mirrors, which is the limit; one can copy many topics"
            )
        async with self._lock:
            await self._store(definition.name, {"definition": json.dumps(asdict(definition))})
            self._known[definition.name] = definition

    async def delete(self, name: str) -> None:
        """Forget a definition. Raises ``UnknownMirror``, and as the catalog does."""
        self.get(name)
        async with self._lock:
            await self._store(name, {})
            self._known.pop(name, None)

    async def _store(self, name: str, configs: dict[str, Any]) -> None:
        record = ConfigRecord(kind=MIRROR_KIND, entity=name, configs=configs)
        await self._catalog.run(lambda catalog: catalog.set_configs(record))
