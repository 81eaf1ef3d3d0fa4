"""Refuses what another site's page asks through the reader's browser.

The broker has no login, so whatever a browser beside it can be made to send
would be done. Two ways lead there, and programs are on neither:

- A page posts to the broker's address. Browsers say where a request comes from,
  with ``Sec-Fetch-Site`` where the address is https or of this machine, else with
  ``Origin``. What changes something must come from the broker's own pages.
- The name of a page's own site is made to point to this machine (DNS rebinding).
  Then the browser sees one site, and the name in ``Host`` gives it away: over
  loopback the broker answers to its own names alone (``http_allowed_hosts``).
"""

from __future__ import annotations

import ipaddress
import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from ..settings import Settings
from .errors import http_problem, problem_response

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# "none" is somebody who typed the address.
_OWN = frozenset({b"same-origin", b"none"})
_ANY = "*"


class RefuseCrossSite:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        own = {"localhost", socket.gethostname(), settings.host, settings.advertised_host or ""}
        allowed = {name.strip() for name in (settings.http_allowed_hosts or "").split(",")}
        self._names = frozenset(name.lower() for name in own | allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(http_problem(403, refusal))(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        site = origin = None
        hosts: list[bytes] = []
        # Only a proxy sets this: no page can, for another site.
        forwarded: list[bytes] = []
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"x-forwarded-host":
                forwarded.append(value)
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"origin":
                origin = value
        if scope["method"] not in _SAFE_METHODS and not _is_own(site, origin, hosts + forwarded):
            return "a page of another site asked for a change; only this broker's own pages may"
        server = scope.get("server")
        if server is not None and _is_loopback(server[0]):
            for host in hosts:
                name = _name_of(host)
                if not self._is_known(name):
                    return (
                        f"{name!r} is no name of this broker, so this may come from another site's page; "
                        "use localhost or the address, or allow the name with "
                        f"--set http_allowed_hosts={name}"
                    )
        return None

    def _is_known(self, name: str) -> bool:
        return name in self._names or _ANY in self._names or name.endswith(".localhost") or _is_address(name)


def _is_own(site: bytes | None, origin: bytes | None, hosts: list[bytes]) -> bool:
    if site is not None:
        return site in _OWN
    return origin is None or origin.partition(b"://")[2] in hosts


def _name_of(host: bytes) -> str:
    """``Host`` without its port, in small letters; an IPv6 address without its brackets."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _is_address(name: str) -> bool:
    # No name of a site is one, so it cannot be made to point elsewhere.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    if not _is_address(address):
        return False
    found = ipaddress.ip_address(address)
    # So a socket for both families sees an address of IPv4.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
