"""Signatures of forwarded requests: only what a broker of the cluster signed is accepted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.security.forwarding import (
    VALID_MS,
    ForwardedClient,
    SignedRequest,
    forwarding_key,
    sign,
    verify,
)
from app.security.principal import ANONYMOUS, Principal

KEY = forwarding_key(b"s" * 32)
ADA = ForwardedClient(Principal.parse("User:ada"), "10.0.0.7")
POLL = SignedRequest(method="POST", target="/v1/groups/g/poll?x=1", body=b"{}")
NOW_MS = 1_700_000_000_000


def client_of(key: bytes, value: bytes, request: SignedRequest, now_ms: int) -> ForwardedClient | None:
    """The client of a request with this header, None if it is refused."""
    forwarded = verify(key, value, method=request.method, target=request.target, now_ms=now_ms)
    return forwarded.client if forwarded is not None and forwarded.has(request.body) else None


@pytest.mark.parametrize("client", [ADA, ForwardedClient(ANONYMOUS, "::1"), replace(ADA, host="é\n.")])
def test_a_signed_request_names_its_client(client: ForwardedClient) -> None:
    assert client_of(KEY, sign(KEY, client, POLL, NOW_MS), POLL, NOW_MS + VALID_MS) == client


@pytest.mark.parametrize(
    "other",
    [
        replace(POLL, method="GET"),
        replace(POLL, target="/v1/groups/h/poll?x=1"),
        replace(POLL, target="/v1/groups/g/poll"),
        replace(POLL, body=b"{ }"),
    ],
)
def test_a_signature_is_for_one_request(other: SignedRequest) -> None:
    assert client_of(KEY, sign(KEY, ADA, POLL, NOW_MS), other, NOW_MS) is None


@pytest.mark.parametrize("now_ms", [NOW_MS + VALID_MS + 1, NOW_MS - VALID_MS - 1])
def test_a_signature_ends(now_ms: int) -> None:
    assert client_of(KEY, sign(KEY, ADA, POLL, NOW_MS), POLL, now_ms) is None


def test_another_cluster_or_a_client_cannot_sign() -> None:
    theirs = sign(forwarding_key(b"t" * 32), ADA, POLL, NOW_MS)
    assert client_of(KEY, theirs, POLL, NOW_MS) is None
    ours = sign(KEY, ADA, POLL, NOW_MS)
    root = sign(forwarding_key(b"t" * 32), replace(ADA, principal=Principal.parse("User:root")), POLL, NOW_MS)
    # The signature of one request with the principal of another.
    assert client_of(KEY, ours.split(b".")[0] + b"." + root.split(b".")[1], POLL, NOW_MS) is None


@pytest.mark.parametrize(
    "value",
    [b"", b".", b"a.b", b"\xff.\xff", b"AAAA", b"AAAA.AAAA", b"AA=A.AAAA", b"AAAA.AAAA.AAAA", b"." * 99],
)
def test_other_values_are_no_signatures(value: bytes) -> None:
    assert client_of(KEY, value, POLL, NOW_MS) is None


def test_an_empty_secret_makes_no_key() -> None:
    with pytest.raises(ValueError, match="no secret"):
        forwarding_key(b"")
