"""Forward what a transaction settles to the coordinators of its groups."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from ..broker.forwarding import ForwardedRequest, headers_of
from ..cluster.membership import Member
from ..errors import InvalidRequest
from ..security.forwarding import HEADER, ForwardedClient, SignedRequest, sign
from .authentication import peer_of
from .forwarding import NOT_RETURNED, NOT_SENT, Forwarding, target_of


def coordinators(request: Request, groups: Iterable[str]) -> list[tuple[Member | None, list[str]]]:
    """Return the brokers that coordinate groups, each with its groups.

    None is this one.
    """
    forwarding: Forwarding | None = request.scope.get("stele.forwarding")
    if forwarding is None or "stele.forwarded" in request.scope:
        return [(None, list(groups))]
    by_broker: dict[int | None, tuple[Member | None, list[str]]] = {}
    for group in groups:
        member = forwarding.forwarder.target(group)
        broker_id = None if member is None else member.broker_id
        by_broker.setdefault(broker_id, (member, []))[1].append(group)
    return list(by_broker.values())


async def forward(request: Request, group: str, member: Member, body: bytes) -> Response:
    """Send a request with ``body`` to the coordinator of a group.

    Return its response.

    Raises ``NotCoordinator``.
    """
    forwarding: Forwarding = request.scope["stele.forwarding"]
    client = ForwardedClient(request.scope["stele.principal"], peer_of(request.scope).host)
    signed = SignedRequest(method=request.method, target=target_of(request.scope), body=body)
    signature = sign(forwarding.key, client, signed, forwarding.clock.now_ms())
    headers = [*headers_of(request.scope["headers"], NOT_SENT), (HEADER, signature)]
    response = await forwarding.forwarder.send(
        group,
        member,
        ForwardedRequest(method=signed.method, target=signed.target, headers=headers, body=body),
    )
    answer = Response(response.body, response.status)
    answer.raw_headers.extend(
        (name, value)
        for name, value in headers_of(response.headers, NOT_RETURNED)
        if name.lower() != b"content-length"
    )
    return answer


def only_coordinator(request: Request, groups: Iterable[str]) -> tuple[Member, str] | None:
    """Return the broker that coordinates all groups, with one of them.

    None if it is this one.

    Raises:
        InvalidRequest: there are several.
    """
    members = coordinators(request, groups)
    if len(members) > 1:
        raise InvalidRequest(
            "the groups of one request have their coordinators at different brokers; begin a transaction, settle each "
            "group in a request of its own, and commit"
        )
    for member, names in members:
        if member is not None:
            return member, names[0]
    return None
