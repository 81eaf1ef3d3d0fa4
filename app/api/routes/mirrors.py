"""Mirrors over HTTP: what they copy, how far they are, and the end of a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, cast

from msgspec import Struct, field
from starlette.requests import Request

from ...broker.mirrors import MirrorDefinition
from ...errors import InvalidRequest
from ...security.audit import log_change
from ...security.principal import ANONYMOUS
from ..authentication import peer_of
from ..guarded_route import GuardedRoute
from ..json_bodies import JsonBody
from ..routing import Routes
from ..schemas import Shown, one_of
from ..state import MirrorsView, api_state

route = Routes("mirrors", GuardedRoute, errors=(503,))
_Properties = Annotated[
    dict[str, str],
    Shown(
        "properties of the connection, by the names of Kafka's clients; a secret is ${env:STELE_MIRROR_SECRET_…} or "
        "${file:NAME}",
        name="MirrorSource",
    ),
]

# With ``equal``, copies in another cluster keep the offsets; with ``translate``, committed offsets are translated.
_Offsets = Annotated[str, one_of("MirrorOffsets", "equal", "translate")]


class MirroredPartition(TypedDict):
    partition: int
    offset: Annotated[int | None, Shown("where the copy ends")]
    source_end: Annotated[int | None, Shown("where the source ends")]
    lag: int | None
    state: str
    error: str | None
    common_end: NotRequired[
        Annotated[
            int,
            Shown("of a copy that has diverged: it and the source are the same before this offset"),
        ]
    ]


class MirroredTopicState(TypedDict):
    topic: str
    partitions: list[MirroredPartition]


class UnlistedPartitions(TypedDict):
    partitions: int
    lag: int


MirrorDocument = TypedDict(
    "MirrorDocument",
    {
        "name": str,
        "from": Annotated[str | None, Shown("brokers of the source; null if it copies to another cluster")],
        "to": Annotated[str | None, Shown("brokers of the target; null if it copies to this broker")],
        "topics": str,
        "groups": str | None,
        "acls": bool,
        "source": _Properties,
        "target": _Properties,
        "offsets": _Offsets,
        "rate": int | None,
    },
)


class Mirror(TypedDict):
    name: str
    state: Annotated[str, one_of("MirrorState", "starting", "copying", "level", "paused", "failed")]
    restarts: int
    definition: MirrorDocument
    lag: NotRequired[Annotated[int | None, Shown("offsets of the source that are not copied yet")]]
    lag_seconds: NotRequired[
        Annotated[
            float, Shown("since when a copy lacks what the source had then, also while it does not answer")
        ]
    ]
    source_records: NotRequired[
        Annotated[int, Shown("offsets of the source in all, from where the copies begin")]
    ]
    stopped: NotRequired[Annotated[int, Shown("partitions that wait for a person")]]
    bytes_per_s: NotRequired[float]
    copied_bytes: NotRequired[int]
    topics: NotRequired[list[MirroredTopicState]]
    unlisted: NotRequired[Annotated[UnlistedPartitions, Shown("the partitions beyond some hundred")]]
    not_copied: NotRequired[list[str]]
    last_error: NotRequired[str | None]


class MirrorList(TypedDict):
    mirrors: list[Mirror]


class AbortedByPromotion(TypedDict):
    partition: int
    producer_id: int
    first_offset: int


class PromotedTopic(TypedDict):
    topic: str
    aborted_transactions: list[AbortedByPromotion]


class Promotion(TypedDict):
    promoted: list[PromotedTopic]
    unfinished: Annotated[
        str | None,
        Shown(
            "why the copies may lack what the source had by then, or what its groups had committed; null if not"
        ),
    ]


class CutCopy(TypedDict):
    topic: str
    partition: int
    before: Annotated[int, Shown("where the copy ended")]
    after: int
    groups: Annotated[
        list[str], Shown("groups whose committed offsets were past the new end, and are there now")
    ]


class Truncation(TypedDict):
    truncated: list[CutCopy]


class MirrorBody(Struct, forbid_unknown_fields=True, rename={"origin": "from"}):
    """What a mirror copies, from a source to this broker or from here to a target."""

    topics: Annotated[str, Shown("regular expression of whole names")]
    origin: Annotated[str | None, Shown("brokers of the source to begin with: HOST:PORT,…")] = None
    to: Annotated[str | None, Shown("brokers of the target to begin with, instead of a source")] = None
    groups: Annotated[str | None, Shown("regular expression of the groups whose offsets are copied")] = None
    acls: Annotated[bool, Shown("whether access rules and quotas are copied")] = False
    source: _Properties = field(default_factory=dict[str, str])
    target: _Properties = field(default_factory=dict[str, str])
    offsets: _Offsets = "equal"
    rate: Annotated[int | None, Shown("limit of all copying in bytes per second", minimum=1024)] = None
    paused: bool = False


class PromotionBody(Struct, forbid_unknown_fields=True):
    """What to promote."""

    topic: Annotated[str | None, Shown("one copy; without it all, and the mirror is deleted")] = None


class TruncationBody(Struct, forbid_unknown_fields=True):
    """What to cut back."""

    topic: Annotated[str | None, Shown("one copy; without it all that have diverged")] = None


_BODY = JsonBody(MirrorBody, '{"from": "kafka:9092", "topics": "orders\\\\..*", "groups": ".*"}')
_TRUNCATION = JsonBody(TruncationBody, '{"topic": "orders.eu"}', is_required=False)
_PROMOTION = JsonBody(PromotionBody, '{"topic": "orders.eu"}', is_required=False)


def _mirrors(request: Request) -> MirrorsView:
    mirrors = api_state(request).mirrors
    if mirrors is None:
        raise InvalidRequest("this application runs no mirrors")
    return mirrors


def _shown(status: Mapping[str, Any]) -> Mirror:
    definition = cast("MirrorDefinition", status["definition"])
    return cast("Mirror", {**status, "name": definition.name, "definition": definition.as_document()})


def _log(request: Request, operation: str, name: str) -> None:
    principal = request.scope.get("stele.principal", ANONYMOUS)
    log_change(
        peer_of(request.scope), principal=str(principal), operation=operation, resource=f"Mirror:{name}"
    )


@route("GET /v1/mirrors", "List mirrors")
async def list_mirrors(request: Request) -> MirrorList:
    """Return all mirrors and how far each is: state, lag, partitions, and what could not be copied."""
    return {"mirrors": [_shown(status) for status in _mirrors(request).list()]}


@route("GET /v1/mirrors/{mirror}", "Get a mirror", errors=(404,))
async def get_mirror(request: Request) -> Mirror:
    """Return what a mirror copies and how far it is."""
    return _shown(_mirrors(request).get(request.path_params["mirror"]))


@route("PUT /v1/mirrors/{mirror}", "Create or change a mirror", body=_BODY)
async def put_mirror(request: Request) -> Mirror:
    """Copy topics of another Kafka cluster, with the same offsets, until they are promoted; or topics to one, with `to`.

    A mirror that exists goes on with what the body says; with `paused` it rests.
    """
    name = request.path_params["mirror"]
    body = await _BODY.read(request)
    servers, is_outward = body.origin or body.to, body.origin is None
    if servers is None or None not in (body.origin, body.to):
        raise InvalidRequest("a mirror needs either from or to: HOST:PORT of brokers of another cluster")
    if body.source if is_outward else body.target:
        raise InvalidRequest("source has the properties of a mirror with from, target those of one with to")
    definition = MirrorDefinition(
        name=name,
        servers=servers,
        topics=body.topics,
        groups=body.groups,
        acls=body.acls,
        source=body.target if is_outward else body.source,
        rate_bytes_s=body.rate,
        is_paused=body.paused,
        is_outward=is_outward,
        offsets=body.offsets,
    )
    mirrors = _mirrors(request)
    await mirrors.put(definition)
    _log(request, "put-mirror", name)
    return _shown(mirrors.get(name))


@route("DELETE /v1/mirrors/{mirror}", "Delete a mirror", errors=(404,))
async def delete_mirror(request: Request) -> None:
    """Stop a mirror and forget it. Its topics stay as they are, read-only; a mirror of the same name goes on with them."""
    name = request.path_params["mirror"]
    await _mirrors(request).delete(name)
    _log(request, "delete-mirror", name)


@route("POST /v1/mirrors/{mirror}/promote", "Promote copies", body=_PROMOTION, errors=(404,))
async def promote_mirror(request: Request) -> Promotion:
    """Make ordinary topics of the copies of a mirror, or of one, at the offsets that they have.

    Transactions that are open in a copy are aborted, because their coordinator stays behind.
    """
    name = request.path_params["mirror"]
    body = await _PROMOTION.read(request)
    promoted, unfinished = await _mirrors(request).promote(name, body.topic)
    _log(request, "promote-mirror", name)
    return {
        "unfinished": unfinished or None,
        "promoted": [
            {
                "topic": topic,
                "aborted_transactions": [
                    {
                        "partition": each.topic_partition.partition,
                        "producer_id": each.producer_id,
                        "first_offset": each.first_offset,
                    }
                    for each in ended
                ],
            }
            for topic, ended in promoted
        ],
    }


@route("POST /v1/mirrors/{mirror}/truncate", "Cut back copies", body=_TRUNCATION, errors=(404,))
async def truncate_mirror(request: Request) -> Truncation:
    """Delete the records of copies that their source has lost, where it has diverged, and go on with what it has.

    `common_end` of a partition says where it is cut. Committed offsets past the new end are moved there, and share groups
    forget what they know of records from there on. Copies in shared storage cannot be cut back: this names them.
    """
    name = request.path_params["mirror"]
    body = await _TRUNCATION.read(request)
    cut = await _mirrors(request).truncate(name, body.topic)
    _log(request, "truncate-mirror", name)
    return {
        "truncated": [
            {
                "topic": one.topic_partition.topic,
                "partition": one.topic_partition.partition,
                "before": one.before,
                "after": one.after,
                "groups": list(one.groups),
            }
            for one in cut
        ]
    }
