"""The HTTP door's own traffic: bytes of bodies through a middleware, connections from the server."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..broker.doors import CLIENT_TEXT_CHARACTERS_MAX, ConnectionView, Traffic

_Address = tuple[str, int]
# More than can be open at once would be told apart in vain.
_PEERS_MAX = 4096


@dataclass(slots=True)
class _Seen:
    since_s: float
    user_agent: str = ""
    bytes_in: int = 0
    bytes_out: int = 0


class HttpTraffic:
    """Implements ``DoorView``. ``open_peers`` is what the server says is connected now."""

    name = "http"

    def __init__(self, open_peers: Callable[[], Iterable[_Address]] = tuple) -> None:
        self.open_peers = open_peers
        self._opened = 0
        self._bytes_in = 0
        self._bytes_out = 0
        self._peers: OrderedDict[_Address, _Seen] = OrderedDict()

    def traffic(self) -> Traffic:
        return Traffic(
            connections=len(set(self.open_peers())),
            connections_opened=self._opened,
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
        )

    def connection_views(self) -> list[ConnectionView]:
        now_s = time.monotonic()
        views: list[ConnectionView] = []
        for address in set(self.open_peers()):
            peer = self._peers.get(address) or _Seen(now_s)
            name, _, rest = peer.user_agent.partition("/")
            host, port = address
            views.append(
                ConnectionView(
                    door=self.name,
                    peer=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                    age_ms=round((now_s - peer.since_s) * 1000),
                    bytes_in=peer.bytes_in,
                    bytes_out=peer.bytes_out,
                    client_name=name,
                    client_version=rest,
                )
            )
        return views

    def _peer(self, scope: Scope) -> _Seen:
        host, port = scope.get("client") or ("?", 0)
        address = (host, port)
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = _Seen(time.monotonic())
            self._opened += 1
            if len(self._peers) > _PEERS_MAX:
                self._peers.popitem(last=False)
        for name, value in scope["headers"]:
            if name == b"user-agent":
                peer.user_agent = value.decode("latin-1")[:CLIENT_TEXT_CHARACTERS_MAX]
        return peer

    def middleware(self, app: ASGIApp) -> ASGIApp:
        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            peer = self._peer(scope)

            async def receive_counted() -> Message:
                message = await receive()
                size = len(message.get("body", b""))
                peer.bytes_in += size
                self._bytes_in += size
                return message

            async def send_counted(message: Message) -> None:
                size = len(message.get("body", b""))
                peer.bytes_out += size
                self._bytes_out += size
                await send(message)

            await app(scope, receive_counted, send_counted)

        return counted
