"""Decide from the head of a request how it is served (RFC 9110, RFC 9112).

The parser (llhttp) has checked the syntax of the fields and their framing by then: lengths that conflict, a coding
beside a length, folded lines, bare line feeds, blanks before a colon. What it leaves to its users is checked here.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from .refusals import Refused

_VERSIONS = frozenset({"1.1", "1.0"})
# Letters, digits and marks of a host and a port; an address of IPv6 is in brackets.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~%!$&'()*+,;=]*)(:[0-9]*)?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]+)", re.IGNORECASE)
# Of which a second one could mean something else to a proxy on the way.
_ONCE = frozenset({b"host", b"content-type"})
_LOOKED_AT = _ONCE | {b"transfer-encoding", b"expect"}
# Fields that the end of a request depends on, and what they say of the end of its connection.
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_PERSISTENCE = frozenset((b"close", b"keep-alive"))
BLANKS = b" \t"

Fields = list[tuple[bytes, bytes]]


class Target(NamedTuple):
    """A request target: its path as sent and decoded, and its query."""

    raw_path: bytes
    path: str
    query: bytes


def check_head(version: str, method: str, fields: Fields) -> bool:
    """Return whether the client waits for ``100 Continue``.

    Names in ``fields`` are in lower case. Raises ``Refused``.
    """
    if version not in _VERSIONS:
        raise Refused(505, f"HTTP/{version} is not supported; send HTTP/1.1")
    if method == "CONNECT":
        raise Refused(501, "this is no proxy, so CONNECT is not supported")
    seen: set[bytes] = set()
    expects = False
    for name, value in fields:
        if name not in _LOOKED_AT:
            continue
        if name in seen and name in _ONCE:
            raise Refused(400, f"the request has several {name.decode()} fields; send one")
        seen.add(name)
        if name == b"host":
            if _HOST.fullmatch(value) is None:
                raise Refused(400, f"Host is {value[:100]!r}, which is no host with a port")
        elif name == b"transfer-encoding":
            _check_coding(version, value)
        elif name == b"expect" and version == "1.1":
            if value.lower() != b"100-continue":
                raise Refused(417, f"Expect is {value[:100]!r}; only 100-continue is supported")
            expects = True
    if version == "1.1" and b"host" not in seen:
        raise Refused(400, "the request has no Host field, which HTTP/1.1 requires")
    return expects


def _check_coding(version: str, value: bytes) -> None:
    if version == "1.0":
        raise Refused(400, "HTTP/1.0 has no Transfer-Encoding; send Content-Length")
    if value.lower() != b"chunked":
        raise Refused(501, f"Transfer-Encoding is {value[:100]!r}; only chunked is supported")


def target_of(method: str, url: bytes, fields: Fields) -> Target:
    """Split a request target.

    The host of an absolute one takes the place of ``Host`` in ``fields``. Raises ``Refused``.
    """
    if b"#" in url:
        raise Refused(400, "the request target has a fragment; encode # as %23")
    if not url.startswith(b"/"):
        if url == b"*" and method == "OPTIONS":
            return Target(url, "*", b"")
        absolute = _ABSOLUTE.match(url)
        if absolute is None or _HOST.fullmatch(absolute[1]) is None:
            raise Refused(400, f"the request target is {url[:100]!r}; send a path that begins with a slash")
        fields[:] = [(name, absolute[1] if name == b"host" else value) for name, value in fields]
        url = url[absolute.end() :]
        if not url.startswith(b"/"):
            url = b"/" + url
    raw_path, _, query = url.partition(b"?")
    path = raw_path.decode("ascii")
    return Target(raw_path, unquote(path) if "%" in path else path, query)


def framing_of(method: bytes, version: str, fields: Fields) -> bytes:
    """Return a head of which the body and the connection end as those of another one."""
    lines = [b"%b / HTTP/%b" % (method, version.encode())]
    for name, value in fields:
        if name in _FRAMING:
            lines.append(b"%b: %b" % (name, value))
        elif name == b"connection":
            options = [option.strip(BLANKS) for option in value.split(b",")]
            lines += [b"connection: " + option for option in options if option.lower() in _PERSISTENCE]
    return b"\r\n".join(lines) + b"\r\n\r\n"
