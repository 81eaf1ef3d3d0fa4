"""The rights that each route of the HTTP listener requires.

A route without a row is refused.

A need names a right and where the request names the resource. Whether that exists is
never looked at before the right. Lists leave out what the client may not see; routes
whose bodies name topics check those themselves, with the functions at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from starlette.requests import Request

from ..groups.leases.lease import Lease
from ..security.acl import (
    ALTER_CLUSTER,
    ALTER_CONFIGS_CLUSTER,
    ALTER_CONFIGS_GROUP,
    CREATE_CLUSTER,
    CREATE_TOKENS_USER,
    CREATE_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS_CLUSTER,
    DESCRIBE_CONFIGS_GROUP,
    DESCRIBE_CONFIGS_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOKENS_USER,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    IDEMPOTENT_WRITE_CLUSTER,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    WRITE_TRANSACTIONAL_ID,
    Action,
)
from ..security.authorizer import Access
from .state import broker_of


@dataclass(frozen=True, slots=True)
class Need:
    """One check, and the rights that it is about."""

    actions: tuple[Action, ...]
    check: Callable[[Access, Request], None]


# By method and path.
Needs = Mapping[tuple[str, str], tuple[Need, ...]]


def _on_path(action: Action, parameter: str) -> Need:
    return Need((action,), lambda access, request: access.require(action, request.path_params[parameter]))


def on_cluster(action: Action) -> Need:
    return Need((action,), lambda access, request: access.require(action))


def topic(action: Action) -> Need:
    return _on_path(action, "topic")


def group(action: Action) -> Need:
    return _on_path(action, "group")


def _check_owner(access: Access, request: Request) -> None:
    named = request.query_params.get("group")
    if named is not None:
        access.require(READ_GROUP, named)


def _check_creation(access: Access, request: Request) -> None:
    """A write may create its topic."""
    broker, name = broker_of(request), request.path_params["topic"]
    if broker.settings.auto_create_topics_enable and not broker.has_topic(name):
        access.require_create(name)


OWNER = Need((READ_GROUP,), _check_owner)
CREATION = Need((CREATE_TOPIC, CREATE_CLUSTER), _check_creation)
CREATE = Need(
    (CREATE_TOPIC, CREATE_CLUSTER),
    lambda access, request: access.require_create(request.path_params["topic"]),
)
SOMEWHERE = Need(
    (IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC), lambda access, request: access.require_write_somewhere()
)


def _check_producer(access: Access, request: Request) -> None:
    """A named producer fences others of its name, as a transactional id does."""
    name = request.query_params.get("name")
    if name is None:
        access.require_write_somewhere()
    else:
        access.require(WRITE_TRANSACTIONAL_ID, name)


PRODUCER = Need((IDEMPOTENT_WRITE_CLUSTER, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID), _check_producer)
PRODUCER_STATE = Need(
    (WRITE_TOPIC, READ_TOPIC),
    lambda access, request: access.require_producer_state(request.path_params["topic"]),
)


def in_route(*actions: Action) -> Need:
    """Return the need of a route that checks its rights by itself.

    Either its body decides, or it filters a list.
    """
    return Need(actions, lambda access, request: None)


# It shows nothing that a right is about.
OPEN: tuple[Need, ...] = ()

_TOPIC, _GROUP = "/v1/topics/{topic}", "/v1/groups/{group}"
_PARTITION = f"{_TOPIC}/partitions/{{partition}}"
_MEMBER = f"{_GROUP}/members/{{member_id}}"
_OWNED = f"{_GROUP}/partitions/{{topic}}/{{partition}}"
_USER = "/v1/users/{user:path}"
_TRANSACTION = "/v1/transactions/{transactional_id}"
_READS = (topic(READ_TOPIC),)
_OWNS = (group(READ_GROUP), topic(READ_TOPIC))
_TRANSACTIONAL = _on_path(WRITE_TRANSACTIONAL_ID, "transactional_id")

NEEDS: Needs = {
    # ── topics ──
    ("GET", "/v1/topics"): (in_route(DESCRIBE_TOPIC),),
    ("PUT", _TOPIC): (CREATE,),
    ("GET", _TOPIC): (
        topic(DESCRIBE_TOPIC),
        in_route(DESCRIBE_CONFIGS_TOPIC, DESCRIBE_TRANSACTIONAL_ID),
    ),
    ("PATCH", _TOPIC): (topic(DESCRIBE_TOPIC), in_route()),
    ("DELETE", _TOPIC): (topic(DELETE_TOPIC),),
    ("DELETE", f"{_TOPIC}/records"): (topic(DELETE_TOPIC),),
    ("DELETE", f"{_PARTITION}/records"): (topic(DELETE_TOPIC),),
    ("POST", f"{_TOPIC}/flush"): (topic(WRITE_TOPIC),),
    ("POST", "/v1/flush"): (SOMEWHERE,),
    ("GET", f"{_PARTITION}/segments"): (topic(DESCRIBE_TOPIC),),
    ("POST", f"{_PARTITION}/verify"): (topic(READ_TOPIC),),
    # ── records ──
    ("POST", f"{_TOPIC}/records"): (topic(WRITE_TOPIC), CREATION),
    ("POST", "/v1/producers"): (PRODUCER,),
    ("GET", f"{_PARTITION}/producers/{{producer_id}}"): (PRODUCER_STATE,),
    ("GET", f"{_PARTITION}/records"): (*_READS, OWNER),
    ("GET", f"{_TOPIC}/records"): _READS,
    ("GET", f"{_PARTITION}/offsets"): (topic(DESCRIBE_TOPIC),),
    ("GET", f"{_TOPIC}/search"): _READS,
    ("POST", f"{_TOPIC}/search"): _READS,
    ("GET", f"{_PARTITION}/records/{{offset}}"): _READS,
    ("GET", f"{_TOPIC}/keys/{{key:path}}"): _READS,
    ("GET", f"{_TOPIC}/table"): _READS,
    # The topics are in the statement.
    ("POST", "/v1/sql"): (in_route(READ_TOPIC),),
    # ── groups ──
    ("GET", "/v1/groups"): (in_route(DESCRIBE_GROUP),),
    ("GET", _GROUP): (group(DESCRIBE_GROUP), in_route(DESCRIBE_TOPIC)),
    ("GET", f"{_GROUP}/lag/history"): (group(DESCRIBE_GROUP), in_route(DESCRIBE_TOPIC)),
    ("DELETE", _GROUP): (group(DELETE_GROUP),),
    ("PUT", f"{_GROUP}/offsets"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/members"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_MEMBER}/heartbeat"): (group(READ_GROUP),),
    ("DELETE", _MEMBER): (group(READ_GROUP),),
    ("PUT", f"{_OWNED}/owner"): _OWNS,
    ("DELETE", f"{_OWNED}/owner"): _OWNS,
    ("PUT", f"{_OWNED}/offset"): _OWNS,
    ("GET", f"{_OWNED}/offset"): (group(DESCRIBE_GROUP), topic(DESCRIBE_TOPIC)),
    ("POST", f"{_GROUP}/poll"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/ack"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/nack"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/extend"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/share/poll"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/share/ack"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/share/release"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/share/reject"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/share/renew"): (group(READ_GROUP), in_route(READ_TOPIC)),
    ("POST", f"{_GROUP}/share/redrive"): (group(READ_GROUP), in_route(READ_TOPIC, WRITE_TOPIC)),
    ("GET", f"{_GROUP}/configs"): (group(DESCRIBE_CONFIGS_GROUP),),
    ("PATCH", f"{_GROUP}/configs"): (group(ALTER_CONFIGS_GROUP),),
    # ── transactions ──
    ("POST", "/v1/transactions"): (in_route(WRITE_TOPIC, CREATE_TOPIC, READ_GROUP, READ_TOPIC),),
    ("POST", f"{_TRANSACTION}/begin"): (_TRANSACTIONAL,),
    ("POST", f"{_TRANSACTION}/records"): (_TRANSACTIONAL, in_route(WRITE_TOPIC, CREATE_TOPIC)),
    ("POST", f"{_TRANSACTION}/settle"): (_TRANSACTIONAL, in_route(READ_GROUP, READ_TOPIC)),
    ("POST", f"{_TRANSACTION}/commit"): (_TRANSACTIONAL,),
    ("POST", f"{_TRANSACTION}/abort"): (_TRANSACTIONAL,),
    ("GET", "/v1/transactions"): (in_route(DESCRIBE_TRANSACTIONAL_ID),),
    ("GET", _TRANSACTION): (
        _on_path(DESCRIBE_TRANSACTIONAL_ID, "transactional_id"),
        in_route(DESCRIBE_TOPIC),
    ),
    # An operator ends what belongs to others.
    ("DELETE", _TRANSACTION): (on_cluster(ALTER_CLUSTER),),
    ("GET", "/v1/open-transactions"): (in_route(DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID),),
    ("GET", f"{_PARTITION}/transactions"): (topic(DESCRIBE_TOPIC), in_route(DESCRIBE_TRANSACTIONAL_ID)),
    ("DELETE", f"{_PARTITION}/transactions/{{producer_id}}"): (on_cluster(ALTER_CLUSTER),),
    # ── the broker ──
    ("GET", "/v1/acls"): (on_cluster(DESCRIBE_CLUSTER),),
    ("POST", "/v1/acls"): (on_cluster(ALTER_CLUSTER),),
    ("DELETE", "/v1/acls"): (on_cluster(ALTER_CLUSTER),),
    ("GET", "/v1/users"): (on_cluster(DESCRIBE_CLUSTER),),
    ("POST", "/v1/users"): (on_cluster(ALTER_CLUSTER),),
    ("PUT", f"{_USER}/password"): (on_cluster(ALTER_CLUSTER),),
    ("DELETE", _USER): (on_cluster(ALTER_CLUSTER),),
    # Every user has keys of its own.
    ("GET", "/v1/keys"): (in_route(DESCRIBE_CLUSTER, DESCRIBE_TOKENS_USER),),
    ("POST", "/v1/keys"): (in_route(ALTER_CLUSTER, CREATE_TOKENS_USER),),
    ("DELETE", "/v1/keys/{key_id}"): (in_route(ALTER_CLUSTER),),
    ("GET", "/v1/quotas"): (on_cluster(DESCRIBE_CONFIGS_CLUSTER),),
    ("PATCH", "/v1/quotas"): (on_cluster(ALTER_CONFIGS_CLUSTER),),
    ("GET", "/v1/cdc"): (on_cluster(DESCRIBE_CLUSTER),),
    # What it does, it does with the connector's rights here and at PostgreSQL.
    ("POST", "/v1/cdc"): (on_cluster(ALTER_CLUSTER),),
    ("GET", "/v1/iceberg"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/v1/iceberg/{topic}"): (topic(DESCRIBE_TOPIC),),
    ("GET", "/v1/mirrors"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/v1/mirrors/{mirror}"): (on_cluster(DESCRIBE_CLUSTER),),
    # Its process writes to any topic, and connects to any server.
    ("PUT", "/v1/mirrors/{mirror}"): (on_cluster(ALTER_CLUSTER),),
    ("DELETE", "/v1/mirrors/{mirror}"): (on_cluster(ALTER_CLUSTER),),
    ("POST", "/v1/mirrors/{mirror}/promote"): (on_cluster(ALTER_CLUSTER),),
    ("POST", "/v1/mirrors/{mirror}/truncate"): (on_cluster(ALTER_CLUSTER),),
    ("GET", "/v1/replica"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/v1/overview"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/v1/overview/history"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/v1/connections"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/v1/cluster"): OPEN,
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    # ── what is not in the schema ──
    ("GET", "/metrics"): (on_cluster(DESCRIBE_CLUSTER),),
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/oauth2-redirect"): OPEN,
    ("GET", "/redoc"): OPEN,
    ("GET", "/"): OPEN,
    ("GET", "/console/cluster"): OPEN,
    ("GET", "/console/topics"): OPEN,
    ("GET", "/console/messages"): OPEN,
    ("GET", "/console/produce"): OPEN,
    ("GET", "/console/sql"): OPEN,
    ("GET", "/console/schemas"): OPEN,
    ("GET", "/console/mirrors"): OPEN,
    ("GET", "/console/tables"): OPEN,
    ("GET", "/console/cdc"): OPEN,
    ("GET", "/console/groups"): OPEN,
    ("GET", "/console/storage"): OPEN,
    ("GET", "/console/transactions"): OPEN,
    ("GET", "/console/access"): OPEN,
    ("GET", "/console/static/{version}/{name}"): OPEN,
    ("GET", "/console/login"): OPEN,
    ("POST", "/console/login"): OPEN,
    ("POST", "/console/logout"): OPEN,
}


# ── for routes ──


def access_of(request: Request) -> Access | None:
    """Return what the client may do, None if that is not checked."""
    access: Access | None = request.scope.get("stele.access")
    return access


def is_seen(request: Request, action: Action) -> Callable[[str], bool]:
    """Return whether a list may show a name to clients that may do ``action``."""
    access = access_of(request)
    return (lambda name: True) if access is None else (lambda name: access.sees(action, name))


def require(request: Request, action: Action, names: Iterable[str]) -> None:
    """Raise AuthorizationError if ``action`` is denied for one of ``names``."""
    access = access_of(request)
    if access is not None:
        for name in names:
            access.require(action, name)


def require_write(request: Request, name: str) -> None:
    """Raise AuthorizationError unless the client may write to a topic.

    If the write would create the topic, the client must have the right to create it.
    """
    access = access_of(request)
    if access is not None:
        broker = broker_of(request)
        access.require(WRITE_TOPIC, name)
        if broker.settings.auto_create_topics_enable and not broker.has_topic(name):
            access.require_create(name)


def require_lease(request: Request, group: str, token: str) -> None:
    """Raise AuthorizationError unless the client may read all that a lease holds.

    It does not matter which client polled it.
    """
    if access_of(request) is not None:
        require(request, READ_TOPIC, (part.topic for part in Lease.of_token(group, token).partitions))
