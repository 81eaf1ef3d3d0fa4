"""Protect the broker against CSRF and DNS rebinding.

Without a login the broker would carry out any request that another site's page sends
through a browser on this machine; with one, the browser might add the console's cookie.
Requests of programs are not affected.

- CSRF: a page posts to the broker's address. Browsers name the site that a request
  comes from: in ``Sec-Fetch-Site`` if the target is https or this machine, otherwise
  in ``Origin``. Requests that change something must come from the broker's own pages.
- DNS rebinding: a site makes its own name point to this machine, so that the browser
  sees one site. ``Host`` then holds a foreign name. Over loopback the broker answers
  only to its own names and those of ``http_allowed_hosts``.
"""

from __future__ import annotations

import ipaddress
import socket
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from ...settings import Settings
from ..errors import http_problem, problem_response

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Browsers send "none" for an address that the user typed.
_OWN = frozenset({b"same-origin", b"none"})
_ANY = "*"


class RefuseCrossSite:
    """ASGI middleware that refuses cross-site requests with 403."""

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
        # Only a proxy sets this header; a page cannot set it on a request to another site.
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
            return "a page of another site tried to change something; only the broker's own pages may"
        server = scope.get("server")
        if server is not None and _is_loopback(server[0]):
            for host in hosts:
                name = _name_of(host)
                if not self._is_known(name):
                    return (
                        f"{name!r} is not a name of this broker, so a page of another site may have sent the request; "
                        "use localhost or the address of the broker, or allow the name with "
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
    """Return the name in ``Host``, in lower case.

    The port and the brackets of an IPv6 address are removed.
    """
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


# Clients send the same few names with every request.
@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    # An address is not resolved, so DNS rebinding cannot redirect it.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=256)
def _is_loopback(address: str) -> bool:
    if not _is_address(address):
        return False
    parsed = ipaddress.ip_address(address)
    # A socket for both families reports an IPv4 address as a mapped IPv6 address.
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
