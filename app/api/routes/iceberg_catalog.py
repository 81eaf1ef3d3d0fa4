"""The REST catalog of Apache Iceberg, read-only: engines find the tables of topics and their metadata.

The specification is ``open-api/rest-catalog-open-api.yaml`` of apache/iceberg. There is one namespace. A table has the
rights of its topic. Everything that is not here is refused as not supported: only the process that writes the tables
commits, clients bring their own credentials for the files, and there are no views.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Scope

from ...security.acl import DESCRIBE_TOPIC, READ_TOPIC
from ...security.authorizer import Access
from ...work_budget import visited
from ..encoded_slash import EncodedSlashRoute
from ..errors import HttpError
from ..openapi.operations import JSON
from ..parameters import InPath, Number, Text
from ..replaced_problems import ReplaceProblems
from ..requests import INT32_MAX
from ..rights import OPEN, Need, Needs, in_route, is_seen
from ..routing import Routes
from ..state import IcebergCatalogView, api_state, broker_of

PREFIX = "/iceberg"
_NAMESPACE = "stele"
# Of the table with the records that do not fit in the table of their topic.
_ERRORS = "_errors"
_PAGE_MAX = 1000
_ENDPOINTS = [
    f"{method} /v1/{{prefix}}/namespaces{rest}"
    for method, rest in (
        ("GET", ""),
        ("GET", "/{namespace}"),
        ("HEAD", "/{namespace}"),
        ("GET", "/{namespace}/tables"),
        ("GET", "/{namespace}/tables/{table}"),
        ("HEAD", "/{namespace}/tables/{table}"),
    )
]
# How clients tell errors of a status apart, and show them; others have none of their own.
_TYPES = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NotFoundException",
    406: "UnsupportedOperationException",
    429: "TooManyRequestsException",
    503: "ServiceUnavailableException",
}
_READ_ONLY = (
    "this catalog is read-only: it serves GET /v1/config, namespaces and tables; topics are written through Stele, "
    "which commits to their tables. It hands out no tokens or credentials"
)


def _topic_of(request: Request, table: str) -> str:
    """Return the topic that a table is made of; no topic may have the name of another's error table."""
    if table.endswith(_ERRORS) and not broker_of(request).has_topic(table):
        return table.removesuffix(_ERRORS)
    return table


def _check(access: Access, request: Request) -> None:
    # Clients look for metadata tables, such as stele.orders.snapshots, where there are none.
    if request.path_params["namespace"] == _NAMESPACE:
        access.require(READ_TOPIC, _topic_of(request, request.path_params["table"]))


_IN_NAMESPACE = "/v1/namespaces/{namespace}"
_NEEDS: Needs = {
    ("GET", "/v1/config"): OPEN,
    ("GET", "/v1/namespaces"): OPEN,
    ("GET", _IN_NAMESPACE): OPEN,
    ("GET", f"{_IN_NAMESPACE}/tables"): (in_route(DESCRIBE_TOPIC),),
    ("GET", f"{_IN_NAMESPACE}/tables/{{table}}"): (Need((READ_TOPIC,), _check),),
}


class _IcebergRoute(EncodedSlashRoute):
    declared_needs: ClassVar[Needs] = _NEEDS


# Clients send parameters of other servers and of newer versions.
route = Routes("iceberg", _IcebergRoute, is_strict=False)
_PARENT = Text("parent", "list the namespaces in this one; there are none")
_TOKEN = Text(
    "pageToken", "next-page-token of the previous page, or empty for the first one; without it all are listed"
)
_SIZE = Number(
    "pageSize", "tables per page", _PAGE_MAX, minimum=1, maximum=INT32_MAX, shown_maximum=_PAGE_MAX
)
_IN_PATH = InPath("namespace", _NAMESPACE)
_TABLE = InPath("table", "orders")


class CatalogConfig(TypedDict):
    defaults: dict[str, str]
    overrides: dict[str, str]
    endpoints: list[str]


NamespaceList = TypedDict("NamespaceList", {"namespaces": list[list[str]], "next-page-token": str | None})


class NamespaceProperties(TypedDict):
    namespace: list[str]
    properties: dict[str, str]


class TableName(TypedDict):
    namespace: list[str]
    name: str


TableList = TypedDict("TableList", {"identifiers": list[TableName], "next-page-token": str | None})


def _tables(request: Request) -> IcebergCatalogView | None:
    tables = api_state(request).iceberg
    return None if tables is None else tables.catalog


def _check_namespace(namespace: str) -> None:
    if namespace != _NAMESPACE:
        raise HttpError(
            404,
            f"namespace {namespace[:100]!r} does not exist; all tables are in {_NAMESPACE!r}",
            exception="NoSuchNamespaceException",
        )


@route("GET /v1/config", "Configure a client")
async def get_catalog_config(request: Request) -> CatalogConfig:
    """Return where the files are, without credentials, and which endpoints there are; a warehouse is not looked at."""
    tables = _tables(request)
    return {
        "defaults": {} if tables is None else dict(tables.client_properties),
        "overrides": {},
        "endpoints": _ENDPOINTS,
    }


@route("GET /v1/namespaces", "List namespaces", _PARENT)
async def list_catalog_namespaces(request: Request) -> NamespaceList:
    parent = _PARENT.read(request)
    if parent:
        _check_namespace(parent)
    return {"namespaces": [] if parent else [[_NAMESPACE]], "next-page-token": None}


@route("GET /v1/namespaces/{namespace}", "Get a namespace")
async def get_catalog_namespace(request: Request) -> NamespaceProperties:
    _check_namespace(_IN_PATH.read(request))
    return {"namespace": [_NAMESPACE], "properties": {}}


@route("GET /v1/namespaces/{namespace}/tables", "List tables", _TOKEN, _SIZE)
async def list_catalog_tables(request: Request) -> TableList:
    """List the tables whose topics the client may see, by name."""
    _check_namespace(_IN_PATH.read(request))
    after, size = _TOKEN.given(request), min(_SIZE.read(request), _PAGE_MAX)
    tables, is_listed = _tables(request), is_seen(request, DESCRIBE_TOPIC)
    all_names = [] if tables is None else await tables.list_tables()
    names = [name async for name in visited(all_names) if is_listed(_topic_of(request, name))]
    token: str | None = None
    if after is not None:
        begin = bisect_right(names, after) if after else 0
        rest, names = len(names) - begin, names[begin : begin + size]
        token = names[-1] if rest > size else None
    return {
        "identifiers": [{"namespace": [_NAMESPACE], "name": name} for name in names],
        "next-page-token": token,
    }


@route("GET /v1/namespaces/{namespace}/tables/{table}", "Load a table")
async def load_catalog_table(request: Request) -> Response:
    """Return the metadata of the newest snapshot, as the file of the table has it."""
    namespace, name, tables = _IN_PATH.read(request), _TABLE.read(request), _tables(request)
    found = None if tables is None or namespace != _NAMESPACE else await tables.load(name)
    if found is None:
        raise HttpError(404, f"table {name[:300]!r} does not exist", exception="NoSuchTableException")
    location, text = found
    document: dict[str, Any] = {"metadata-location": location, "metadata": msgspec.Raw(text), "config": {}}
    return Response(msgspec.json.encode(document), media_type=JSON)


def mount_iceberg(app: FastAPI) -> None:
    app.router.routes.append(Mount(PREFIX, routes=route.router.routes))


def _encode(scope: Scope, problem: Mapping[str, Any]) -> tuple[int, bytes, str]:
    status, message = int(problem["status"]), problem["detail"]
    if status == 405 or (status == 404 and scope["method"] != "GET"):
        status, message = 406, _READ_ONLY
    kind = problem.get("exception") or _TYPES.get(status, "RESTException")
    return status, msgspec.json.encode({"error": {"message": message, "type": kind, "code": status}}), JSON


def iceberg_errors(app: ASGIApp) -> ASGIApp:
    """Return ``app`` with errors of the REST catalog in place of problem documents below ``PREFIX``."""
    return ReplaceProblems(app, _encode, prefix=f"{PREFIX}/")
