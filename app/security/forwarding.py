"""Sign requests that a broker forwards for its client, and verify them: pure functions.

The coordinator learns the principal and the address of the client from the broker that received the request.
The signature is an HMAC with a key that only the brokers of the cluster know, derived from a secret in their
catalog. It covers principal, address, method, target, time and the digest of the body, so it is checked before the
body is read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import cast

from .principal import Principal

HEADER = b"stele-forwarded"
# How long a signature is valid, so the clocks of two brokers may differ by about as much.
VALID_MS = 60_000
_VERSION = b"stele-forwarded-2"
_BASE64 = b"-_"


@dataclass(frozen=True, slots=True)
class ForwardedClient:
    """The client of a forwarded request: its principal and address."""

    principal: Principal
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """The parts of a request that a signature covers, besides the client.

    ``target`` is path and query as sent.
    """

    method: str
    target: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The contents of a valid signature: the client, and the SHA-256 of the body."""

    client: ForwardedClient
    body_digest: str

    def has(self, body: bytes) -> bool:
        """Return whether ``body`` is the one that was signed."""
        return hmac.compare_digest(self.body_digest, _digest(body))


def forwarding_key(secret: bytes) -> bytes:
    """Return the key for signatures, from the secret of the catalog.

    Raises:
        ValueError: there is no secret, so every client would know the key.
    """
    if not secret:
        raise ValueError("the catalog has no secret to derive a key from")
    return hmac.digest(secret, _VERSION, hashlib.sha256)


def sign(key: bytes, client: ForwardedClient, request: SignedRequest, now_ms: int) -> bytes:
    """Return the value of the header."""
    document = json.dumps([str(client.principal), client.host, now_ms, _digest(request.body)]).encode()
    signature = _signature(key, document, request.method, request.target)
    return base64.urlsafe_b64encode(signature) + b"." + base64.urlsafe_b64encode(document)


def verify(key: bytes, value: bytes, *, method: str, target: str, now_ms: int) -> Forwarded | None:
    """Return what the header of a forwarded request says.

    None if no broker of the cluster signed it, or too long ago. The body is checked by ``Forwarded.has``.
    """
    encoded_signature, _, encoded_document = value.partition(b".")
    try:
        signature = base64.b64decode(encoded_signature, altchars=_BASE64, validate=True)
        document = base64.b64decode(encoded_document, altchars=_BASE64, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not hmac.compare_digest(signature, _signature(key, document, method, target)):
        return None
    # A broker of the cluster has written it.
    principal, host, at_ms, digest = cast("tuple[str, str, int, str]", json.loads(document))
    if abs(now_ms - at_ms) > VALID_MS:
        return None
    return Forwarded(ForwardedClient(Principal.parse(principal), host), digest)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _signature(key: bytes, document: bytes, method: str, target: str) -> bytes:
    # No part can hold a line break: the document is JSON, method and target are of one line.
    parts = (_VERSION, document, method.encode(), target.encode())
    return hmac.digest(key, b"\n".join(parts), hashlib.sha256)
