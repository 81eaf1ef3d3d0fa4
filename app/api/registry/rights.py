"""The rights that each route of the registry requires. A route without a row is refused.

Global rules and modes are those of the cluster. What names no subject shows only those that the client may see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from starlette.requests import Request

from ...errors import ClusterAuthorizationFailed
from ...registry.definitions import SubjectVersion
from ...registry.names import DEFAULT_CONTEXT, GLOBAL_CONTEXT, Name
from ...security.acl import (
    ACTIONS,
    ALTER_CONFIGS_CLUSTER,
    DELETE_SUBJECT,
    DESCRIBE_CONFIGS_CLUSTER,
    DESCRIBE_SUBJECT,
    READ_SUBJECT,
    WRITE_SUBJECT,
    Action,
    Operation,
    ResourceType,
)
from ...security.authorizer import Access
from ...work_budget import visited
from ..rights import OPEN, Need, Needs, access_of, in_route, is_seen, on_cluster, require
from .bodies import SchemaBody

_T = TypeVar("_T")


def name_of(subject: str) -> str:
    """Return the name by which rules know a subject: the default context is not in front of it."""
    return Name.parse(subject).qualified


def name_of_context(context: str) -> str:
    """Return the name by which rules know a context; those of its subjects begin with it."""
    return f":.{context.removeprefix('.')}:"


def _on_subject(action: Action) -> Need:
    return Need(
        (action,), lambda access, request: access.require(action, name_of(request.path_params["subject"]))
    )


def _on_scope(operation: Operation) -> Need:
    """Return the need of a configuration or a mode; those that others fall back to are the cluster's."""
    action, of_all = ACTIONS[operation, ResourceType.SUBJECT], ACTIONS[operation, ResourceType.CLUSTER]

    def check(access: Access, request: Request) -> None:
        name = Name.parse(request.path_params["subject"])
        if not name.subject and name.context in (DEFAULT_CONTEXT, GLOBAL_CONTEXT):
            access.require(of_all)
        else:
            access.require(action, name.qualified)

    return Need((action, of_all), check)


def _on_context(action: Action) -> Need:
    return Need(
        (action,),
        lambda access, request: access.require(action, name_of_context(request.path_params["context"])),
    )


_SUBJECT = "/subjects/{subject}"
_VERSIONS, _VERSION = f"{_SUBJECT}/versions", f"{_SUBJECT}/versions/{{version}}"
_CHECKS = "/compatibility/subjects/{subject}/versions"
_READS = (_on_subject(READ_SUBJECT),)
# Who checks a schema, or registers one, must see those that it refers to.
_CHECKED = (_on_subject(READ_SUBJECT), in_route(READ_SUBJECT))

NEEDS: Needs = {
    ("GET", "/subjects"): (in_route(DESCRIBE_SUBJECT),),
    # The client knows the schema that it looks up.
    ("POST", _SUBJECT): (_on_subject(DESCRIBE_SUBJECT),),
    ("DELETE", _SUBJECT): (_on_subject(DELETE_SUBJECT),),
    ("GET", _VERSIONS): (_on_subject(DESCRIBE_SUBJECT),),
    ("POST", _VERSIONS): (_on_subject(WRITE_SUBJECT), in_route(READ_SUBJECT)),
    ("GET", _VERSION): _READS,
    ("DELETE", _VERSION): (_on_subject(DELETE_SUBJECT),),
    ("GET", f"{_VERSION}/schema"): _READS,
    ("GET", f"{_VERSION}/referencedby"): (_on_subject(DESCRIBE_SUBJECT),),
    ("GET", f"{_SUBJECT}/metadata"): _READS,
    ("GET", "/schemas/types"): OPEN,
    ("GET", "/schemas"): (in_route(READ_SUBJECT),),
    ("GET", "/schemas/ids/{schema_id}"): (in_route(READ_SUBJECT),),
    ("GET", "/schemas/ids/{schema_id}/schema"): (in_route(READ_SUBJECT),),
    ("GET", "/schemas/ids/{schema_id}/subjects"): (in_route(DESCRIBE_SUBJECT),),
    ("GET", "/schemas/ids/{schema_id}/versions"): (in_route(DESCRIBE_SUBJECT),),
    ("GET", "/schemas/guids/{guid}"): (in_route(READ_SUBJECT),),
    ("GET", "/schemas/guids/{guid}/ids"): (in_route(READ_SUBJECT),),
    ("POST", _CHECKS): _CHECKED,
    ("POST", f"{_CHECKS}/{{version}}"): _CHECKED,
    ("GET", "/config"): (on_cluster(DESCRIBE_CONFIGS_CLUSTER),),
    ("PUT", "/config"): (on_cluster(ALTER_CONFIGS_CLUSTER),),
    ("DELETE", "/config"): (on_cluster(ALTER_CONFIGS_CLUSTER),),
    ("GET", "/config/{subject}"): (_on_scope(Operation.DESCRIBE_CONFIGS),),
    ("PUT", "/config/{subject}"): (_on_scope(Operation.ALTER_CONFIGS),),
    ("DELETE", "/config/{subject}"): (_on_scope(Operation.ALTER_CONFIGS),),
    ("GET", "/mode"): (on_cluster(DESCRIBE_CONFIGS_CLUSTER),),
    ("PUT", "/mode"): (on_cluster(ALTER_CONFIGS_CLUSTER),),
    ("DELETE", "/mode"): (on_cluster(ALTER_CONFIGS_CLUSTER),),
    ("GET", "/mode/{subject}"): (_on_scope(Operation.DESCRIBE_CONFIGS),),
    ("PUT", "/mode/{subject}"): (_on_scope(Operation.ALTER_CONFIGS),),
    ("DELETE", "/mode/{subject}"): (_on_scope(Operation.ALTER_CONFIGS),),
    ("GET", "/contexts"): (in_route(DESCRIBE_SUBJECT),),
    ("DELETE", "/contexts/{context}"): (_on_context(DELETE_SUBJECT),),
    ("GET", "/"): OPEN,
    ("POST", "/"): OPEN,
    ("GET", "/v1/metadata/id"): OPEN,
    ("GET", "/v1/metadata/version"): OPEN,
}


# ── for routes ──


async def seen(
    request: Request, action: Action, items: Sequence[_T], subject: Callable[[_T], str]
) -> Sequence[_T]:
    """Return those ``items`` whose ``subject`` a list may show to clients that may do ``action``; with pauses."""
    if access_of(request) is None:
        return items
    is_name_seen = is_seen(request, action)
    return [item async for item in visited(items) if is_name_seen(name_of(subject(item)))]


def require_references(request: Request, subject: str, body: SchemaBody) -> None:
    """Raise AuthorizationError unless the client may read what a schema refers to, in the context of ``subject``."""
    name = Name.parse(subject)
    require(
        request,
        READ_SUBJECT,
        (name.near(reference.subject).qualified for reference in body.references or ()),
    )


def require_alias(request: Request, subject: str, alias: str) -> None:
    """Raise AuthorizationError unless the client may do itself what an alias lets clients of ``subject`` do."""
    name = Name.parse(subject).near(alias).qualified
    for action in (READ_SUBJECT, WRITE_SUBJECT):
        require(request, action, (name,))


def require_one(request: Request, versions: Iterable[SubjectVersion], what: str) -> None:
    """Raise AuthorizationError unless the client may read one of the subjects that have a schema; it is called ``what``."""
    access = access_of(request)
    if access is None:
        return
    names = [name_of(version.subject) for version in versions]
    # The last one, if none is allowed, is logged as denied. The client does not learn its name.
    if not any(access.sees(READ_SUBJECT, name) for name in names) and not access.allows(
        READ_SUBJECT, names[-1]
    ):
        raise ClusterAuthorizationFailed(str(access.principal), "read", what)
