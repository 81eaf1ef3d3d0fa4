"""Routes of the registry, and the parameters of several of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from ...registry.service import SchemaRegistry
from ...security.audit import log_change
from ..authentication import peer_of
from ..encoded_slash import EncodedSlashRoute
from ..parameters import Flag, InPath, Number, NumberInPath, Text
from ..requests import INT32_MAX, negotiate
from ..rights import Needs
from ..routing import Routes
from .errors import MEDIA_TYPES
from .rights import NEEDS, name_of

_T = TypeVar("_T")


class RegistryRoute(EncodedSlashRoute):
    """Route whose answer is of the media type that the client prefers."""

    declared_needs: ClassVar[Needs] = NEEDS

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def negotiated(request: Request) -> Response:
            media_type = negotiate(request, MEDIA_TYPES)
            response = await handle(request)
            response.headers["content-type"] = media_type
            return response

        return negotiated


def routes(tag: str) -> Routes:
    """Return the routes of a module, which ignore what a query has besides: clients send names of other servers."""
    return Routes(tag, RegistryRoute, is_strict=False)


def registry_of(request: Request) -> SchemaRegistry:
    """Return the registry of the application that serves ``request``."""
    registry: SchemaRegistry = request.app.state.schema_registry
    return registry


def log(request: Request, operation: str, subject: str | None) -> None:
    """Log a change of rules, or a deletion, in the audit log."""
    log_change(
        peer_of(request.scope, request.app.state.http_traffic.name),
        principal=str(request.scope["stele.principal"]),
        operation=operation,
        resource="schema registry" if subject is None else f"SUBJECT {name_of(subject)}",
    )


class RegistryFlag(Flag):
    """``true`` or ``false``; some clients send nothing after the name for a value that they were not given."""

    def read(self, request: Request) -> bool:
        return super().read(request) if request.query_params.get(self.name) else False


class RegistryNumber(Number):
    """A whole number; nothing after the name as for a flag."""

    def read(self, request: Request, default: int | None = None, *, maximum: int | None = None) -> int:
        if request.query_params.get(self.name) == "":
            assert self._default is not None
            return self._default
        return super().read(request, default, maximum=maximum)


SUBJECT = InPath(
    "subject",
    "orders-value",
    "percent-encoded, a slash as %2F; :.CONTEXT:NAME in another context than the default one",
)
VERSION = InPath("version", "latest", "a number from 1, latest, or -1 for the latest")
SCHEMA_ID = NumberInPath("schema_id", 1, maximum=INT32_MAX)
GUID = InPath("guid", "9f5b9e4f-2c8e-5f0a-8b1a-0d0c3a3b8f11")
CONTEXT = InPath("context", ".staging")

NORMALIZE = RegistryFlag(
    "normalize", "take schemas for the same that differ in what does not matter, such as the order of names"
)
FORMAT = Text(
    "format", "resolved (Avro), serialized or ignore_extensions (Protobuf): another form of the schema"
)
REFERENCE_FORMAT = Text("referenceFormat", "qualified: subjects of references have their context in front")
DELETED = RegistryFlag("deleted", "include what is soft-deleted")
DELETED_ONLY = RegistryFlag("deletedOnly", "only what is soft-deleted")
PERMANENT = RegistryFlag("permanent", "delete for good what was soft-deleted before")
DEFAULT_TO_GLOBAL = RegistryFlag("defaultToGlobal", "without a value of its own, return the one in effect")
PREFIX = Text(
    "subjectPrefix", "only subjects that begin with this; :*: stands for all contexts, and is the default"
)
IN_CONTEXT_OF = Text(
    "subject", "look in the context of this subject; without it in the default one, then in the others"
)
OFFSET = RegistryNumber("offset", "how many to leave out", 0)
LIMIT = RegistryNumber("limit", "the most to return; all if it is negative", -1, minimum=-1)
PAGE = (OFFSET, LIMIT)


def in_context_of(request: Request) -> str | None:
    return IN_CONTEXT_OF.given(request) or None


def page_of(request: Request, names: Sequence[_T]) -> list[_T]:
    """Return the part of a list that the client asks for."""
    offset, limit = OFFSET.read(request), LIMIT.read(request)
    return list(names[offset:] if limit < 0 else names[offset : offset + limit])
