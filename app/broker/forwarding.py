"""Forward requests over HTTP to the broker that coordinates the group, or runs the mirrors.

There is one hop at most.

Listeners hand over what the client sent and return what the coordinator answers. The request is signed
(``app.security.forwarding``), so the coordinator knows the client without its password.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from ..cluster.group_shards import SHARD_LEASES, lease_of_group
from ..cluster.membership import Member
from ..errors import NotCoordinator
from .cluster import SharedCluster

logger = logging.getLogger(__name__)

Headers = Sequence[tuple[bytes, bytes]]

# Longer than any poll of a group waits.
_RESPONSE_S = 90.0
_CONNECT_S = 2.0
_CONNECTIONS_MAX = 1000
_KEPT_MAX = 20
_WARN_INTERVAL_S = 10.0
# The answer to a request whose signature is not valid. The login that it stands for is not asked for again, so no other
# answer has this status.
SIGNATURE_REFUSED_STATUS = 401


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedRequest:
    """A request as it is sent: ``target`` is path and query.

    A response with more than ``response_bytes_max`` bytes is not read to its end.
    """

    method: str
    target: str
    headers: Headers
    body: bytes
    response_bytes_max: int | None = None


class ForwardedResponse(NamedTuple):
    """The response of the coordinator; the body is still compressed if the coordinator compressed it."""

    status: int
    headers: Headers
    body: bytes


class Forwarder:
    """Forwards requests to the holder of the lease on a group.

    ``tls`` returns the TLS context for the HTTP listeners of the other brokers, another one when its files have
    changed. It is None if they have no TLS.
    """

    def __init__(
        self, cluster: SharedCluster, *, broker_id: int, tls: Callable[[], ssl.SSLContext] | None
    ) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._tls = tls
        self._connections: _Connections | None = None
        self._open: set[_Connections] = set()
        self._warned_s: dict[int, float] = {}

    def target(self, group: str) -> Member | None:
        """Return the other broker that has the lease on a group, None if this one has it, or none is known to."""
        return self.holder(lease_of_group(group))

    def holder(self, name: str) -> Member | None:
        """Return the other broker that has a lease, None if this one has it, or none is known to."""
        lease = self._cluster.lease(name)
        if lease is None or lease.broker_id == self._broker_id:
            return None
        return next((m for m in self._cluster.members if m.incarnation == lease.incarnation), None)

    def shards_elsewhere(self) -> list[tuple[Member, str]]:
        """Return the other brokers with leases on groups, each with one of these."""
        found = {holder.incarnation: (holder, n) for n in SHARD_LEASES if (holder := self.holder(n))}
        return list(found.values())

    def shards_without_broker(self) -> int:
        """Return how many shards of the groups no broker is known to have."""
        return sum(self._cluster.lease(name) is None for name in SHARD_LEASES)

    async def send(self, group: str, member: Member, request: ForwardedRequest) -> ForwardedResponse:
        """Send a request to the holder of the group's lease; return the response.

        Raises the errors of ``ask``.
        """
        return await self.ask(member, lease_of_group(group), request)

    async def ask(self, member: Member, lease: str, request: ForwardedRequest) -> ForwardedResponse:
        """Send a request and return the response.

        Raises:
            NotCoordinator: the broker cannot be reached, refuses the signature, or lost the lease before it had
                answered; it may be paused.
        """
        sending = asyncio.create_task(self._send(member, request))
        try:
            while not sending.done():
                current = self.holder(lease)
                if current is None or current.incarnation != member.incarnation:
                    raise NotCoordinator(None)
                await asyncio.wait((sending, self._cluster.moved()), return_when=asyncio.FIRST_COMPLETED)
            return sending.result()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def tell(self, member: Member, request: ForwardedRequest) -> ForwardedResponse:
        """Send a request to a broker, whatever leases it has. Raises ``NotCoordinator``."""
        return await self._send(member, request)

    async def moved(self, timeout_ms: int) -> None:
        """Return when leases or live brokers have changed, or after ``timeout_ms``."""
        await asyncio.wait((self._cluster.moved(),), timeout=timeout_ms / 1000)

    async def _send(self, member: Member, request: ForwardedRequest) -> ForwardedResponse:
        endpoint = member.endpoints["http"]
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        url = f"{'http' if self._tls is None else 'https'}://{host}:{endpoint.port}"
        connections, old = self._use()
        try:
            if old is not None:
                await self._close_unused(old)
            sending = connections.client.stream(
                request.method,
                f"{url}/",
                headers=list(request.headers),
                content=request.body,
                # As it was signed: httpx would normalize the path of a URL.
                extensions={"target": request.target.encode("latin-1")},
            )
            async with sending as response:
                body = await _body_of(response, request.response_bytes_max)
        except (httpx.HTTPError, ssl.SSLError, _TooLargeError) as error:
            # With TLS 1.3 a peer refuses a certificate after the handshake, which httpx passes on as it is.
            self._warn(member.broker_id, url, str(error) or type(error).__name__)
            raise NotCoordinator(member.broker_id) from error
        finally:
            connections.requests -= 1
            await self._close_unused(connections)
        if response.status_code == SIGNATURE_REFUSED_STATUS:
            self._warn(member.broker_id, url, "it refuses the signature; compare the clocks of the brokers")
            raise NotCoordinator(member.broker_id)
        return ForwardedResponse(response.status_code, response.headers.raw, body)

    def _warn(self, broker_id: int, url: str, reason: str) -> None:
        """Log why a broker did not answer, at most every ten seconds per broker."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s.get(broker_id, -_WARN_INTERVAL_S) >= _WARN_INTERVAL_S:
            self._warned_s[broker_id] = now_s
            logger.warning("broker %d at %s does not answer group requests: %s", broker_id, url, reason)

    def _use(self) -> tuple[_Connections, _Connections | None]:
        """Return the connections for a request, and those that they replace.

        They are new when the TLS files have changed. ``requests`` counts the request.
        """
        tls, old = None if self._tls is None else self._tls(), self._connections
        current = _Connections(tls) if old is None or old.tls is not tls else old
        current.requests += 1
        self._connections = current
        self._open.add(current)
        return current, None if old is current else old

    async def _close_unused(self, connections: _Connections) -> None:
        """Close connections with an older certificate once no request uses them."""
        if connections is not self._connections and not connections.requests and connections in self._open:
            self._open.remove(connections)
            await connections.client.aclose()

    async def close(self) -> None:
        # A request that ends meanwhile may close its own.
        for connections in tuple(self._open):
            await connections.client.aclose()


class _TooLargeError(Exception):
    """A response has more bytes than its request may bring."""


async def _body_of(response: httpx.Response, bytes_max: int | None) -> bytes:
    """Raises ``_TooLargeError``."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if bytes_max is not None and size > bytes_max:
            raise _TooLargeError(f"the response has more than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


class _Connections:
    """Connections to other brokers with one TLS context, and the requests on them."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.requests = 0
        self.client = httpx.AsyncClient(
            verify=True if tls is None else tls,
            timeout=httpx.Timeout(_RESPONSE_S, connect=_CONNECT_S),
            # A client that accepts no compression gets none.
            headers={"accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=_KEPT_MAX),
            trust_env=False,
        )


def headers_of(headers: Headers, dropped: Collection[bytes]) -> list[tuple[bytes, bytes]]:
    """Return ``headers`` without those in ``dropped``, with names in lower case."""
    return [(name.lower(), value) for name, value in headers if name.lower() not in dropped]
