"""Serve contexts, and what the registry says of itself."""

from __future__ import annotations

from typing import TypedDict

from starlette.requests import Request

from ....security.acl import DESCRIBE_SUBJECT
from ...parameters import Text
from ...rights import is_seen
from ...routes.status import VERSION
from ..rights import name_of_context
from ..routing import CONTEXT, PAGE, log, page_of, registry_of, routes

route = routes("contexts")

_DEFAULT = "."
_PREFIX = Text("contextPrefix", "only contexts that begin with this")


class Empty(TypedDict):
    pass


class Scope(TypedDict):
    path: list[str]
    clusters: dict[str, str]


class ClusterIdJson(TypedDict):
    """The id of the cluster, in the form of Confluent's clusters."""

    id: str
    scope: Scope


class VersionJson(TypedDict):
    version: str
    commitId: str


@route("GET /contexts", "List contexts", _PREFIX, *PAGE)
async def list_contexts(request: Request) -> list[str]:
    """List the contexts; of others than the default one, `.`, those whose name the client has a right on."""
    sees = is_seen(request, DESCRIBE_SUBJECT)
    contexts = await registry_of(request).contexts(prefix=_PREFIX.read(request))
    return page_of(request, [name for name in contexts if name == _DEFAULT or sees(name_of_context(name))])


@route("DELETE /contexts/{context}", "Delete a context")
async def delete_context(request: Request) -> None:
    """Delete a context without subjects, with its configuration and mode."""
    context = CONTEXT.read(request)
    await registry_of(request).delete_context(context)
    log(request, "delete-context", name_of_context(context))


@route("GET /", "Answer")
async def get_root(request: Request) -> Empty:
    """Answer with an empty object, as checks of other registries expect."""
    return {}


@route("POST /", "Answer a POST")
async def post_root(request: Request) -> Empty:
    """Answer with an empty object."""
    return {}


@route("GET /v1/metadata/id", "Get the id of the cluster")
async def get_cluster_id(request: Request) -> ClusterIdJson:
    """Return the id of the cluster."""
    clusters = {
        "kafka-cluster": registry_of(request).cluster_id,
        "schema-registry-cluster": "schema-registry",
    }
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


@route("GET /v1/metadata/version", "Get the version of the server")
async def get_server_version(request: Request) -> VersionJson:
    """Return the version of the broker."""
    return {"version": VERSION, "commitId": ""}
