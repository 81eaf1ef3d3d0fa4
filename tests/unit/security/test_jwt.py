"""Tokens: what a valid one needs, and forgeries that other brokers once accepted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from app.clock import SystemClock
from app.security.jwt_keys import InvalidKeys, IssuerKey, JwtKeys, parse_keys
from app.security.jwt_tokens import InvalidToken, JwtOptions, JwtValidator
from app.security.principal import Login, Principal

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OPTIONS = JwtOptions(issuer="https://issuer.example", audience="stele")
NOW_S = SystemClock().now_ms() // 1000
# The tests may begin long after the import of this module.
EXPIRES_S = NOW_S + 86_400


def key_set() -> bytes:
    rsa_key: dict[str, Any] = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    ec_key: dict[str, Any] = ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True)
    return json.dumps({"keys": [{**rsa_key, "kid": "one"}, {**ec_key, "kid": "two"}]}).encode()


def claims(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "iss": OPTIONS.issuer,
        "aud": OPTIONS.audience,
        "sub": "alice",
        "iat": NOW_S,
        "exp": EXPIRES_S,
    }
    return {name: value for name, value in {**base, **changes}.items() if value is not None}


def signed(payload: dict[str, object], **options: Any) -> str:
    chosen: dict[str, Any] = {"key": KEY, "algorithm": "RS256", "headers": {"kid": "one"}, **options}
    return jwt.encode(payload, **chosen)


class Keys:
    def __init__(self) -> None:
        self._keys = parse_keys(key_set())

    def find(self, key_id: str) -> IssuerKey | None:
        return self._keys.get(key_id)


def login(token: str, options: JwtOptions = OPTIONS) -> Login:
    return JwtValidator(Keys(), options).login(token)


def test_a_valid_token_logs_in_until_it_expires() -> None:
    for token in (
        signed(claims()),
        signed(claims(aud=["others", "stele"])),
        signed(claims(), algorithm="PS256"),
        signed(claims(), key=EC_KEY, algorithm="ES256", headers={"kid": "two"}),
    ):
        made = login(token)
        assert made.principal == Principal("alice")
        assert made.expires_at_ms == (EXPIRES_S) * 1000


def test_another_claim_may_name_the_user() -> None:
    options = JwtOptions(issuer=OPTIONS.issuer, audience="stele", principal_claim="client_id")
    assert login(signed(claims(client_id="ingest")), options).principal == Principal("ingest")
    with pytest.raises(InvalidToken):
        login(signed(claims()), options)


@pytest.mark.parametrize(
    "changes",
    [{name: None} for name in ("iss", "aud", "sub", "iat", "exp")]
    + [
        {"exp": NOW_S - 60},
        {"nbf": NOW_S + 86_400},
        {"iss": "https://evil.example"},
        {"iss": [OPTIONS.issuer]},
        {"aud": "others"},
        {"sub": ["alice"]},
        {"sub": "ANONYMOUS"},
        {"sub": "*"},
        {"sub": "a\nb"},
        {"sub": ""},
    ],
)
def test_claims_that_are_missing_or_wrong_are_refused(changes: dict[str, object]) -> None:
    token = jwt.api_jws.encode(json.dumps(claims(**changes)).encode(), KEY, "RS256", headers={"kid": "one"})
    with pytest.raises(InvalidToken):
        login(token)


def _hs256_with_the_public_key() -> str:
    """Algorithm confusion (CVE-2022-29217): the public key as the secret of an HMAC."""
    import base64
    import hmac

    public = KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    head = (
        part(json.dumps({"alg": "HS256", "kid": "one"}).encode()) + "." + part(json.dumps(claims()).encode())
    )
    return f"{head}.{part(hmac.digest(public, head.encode(), 'sha256'))}"


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(jwt.encode(claims(), "", algorithm="none", headers={"kid": "one"}), id="unsigned"),
        pytest.param(_hs256_with_the_public_key(), id="algorithm confusion"),
        pytest.param(signed(claims(), key=OTHER_KEY), id="another key"),
        pytest.param(signed(claims(), headers={"kid": "three"}), id="unknown key id"),
        pytest.param(signed(claims(), headers={"kid": "two"}), id="a key of another type"),
        pytest.param(signed(claims())[:-4] + "AAAA", id="a changed signature"),
        # RFC 7515: what a token calls critical and the broker does not know makes it invalid (CVE-2026-32597).
        pytest.param(
            signed(claims(), headers={"kid": "one", "crit": ["x"], "x": 1}), id="unknown critical header"
        ),
        pytest.param("a.b.c", id="no token"),
        pytest.param("x" * 20_000, id="too long"),
    ],
)
def test_forgeries_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        login(token)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', b'{"keys": 1}'],
)
def test_a_key_set_without_public_keys_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidKeys):
        parse_keys(data)


@pytest.mark.parametrize(
    "malformed",
    [
        {"kty": "RSA", "kid": "bad"},
        {"kty": "EC", "kid": "bad", "crv": "P-999", "x": "AA", "y": "AA"},
        {"kty": "OKP", "kid": "bad", "crv": "X448", "x": "AA"},
        {"kty": "RSA", "kid": "bad", "n": "AQ", "e": "AQAB", "alg": ["RS256"]},
    ],
)
def test_a_key_that_cannot_be_used_costs_the_others_nothing(malformed: dict[str, object]) -> None:
    listed: list[dict[str, object]] = json.loads(key_set())["keys"]
    assert sorted(parse_keys(json.dumps({"keys": [malformed, *listed]}).encode())) == ["one", "two"]


async def test_keys_of_a_file_are_loaded_again_for_an_unknown_key(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(key_set())
    keys = JwtKeys(str(file), clock=SystemClock())
    await keys.start()
    try:
        assert keys.find("one") is not None
        replaced = json.loads(key_set())
        replaced["keys"][0]["kid"] = "three"
        file.write_text(json.dumps(replaced))
        assert keys.find("three") is None, "the request does not wait"
        async with asyncio.timeout(30):
            while keys.find("three") is None:  # noqa: ASYNC110 (the keys say nothing when they are loaded)
                await asyncio.sleep(0.01)
        assert keys.find("one") is None
    finally:
        await keys.close()


@pytest.mark.parametrize("source", ["http://issuer.example/jwks", "ftp://issuer.example/jwks"])
async def test_only_files_and_https_are_sources_of_keys(source: str) -> None:
    with pytest.raises(ValueError, match="https"):
        JwtKeys(source, clock=SystemClock())


def test_a_key_is_used_with_the_algorithm_that_its_issuer_names() -> None:
    listed = json.loads(key_set())["keys"]
    (key,) = parse_keys(json.dumps({"keys": [{**listed[0], "alg": "PS256"}]}).encode()).values()

    class OneKey:
        def find(self, key_id: str) -> IssuerKey:
            return key

    validator = JwtValidator(OneKey(), OPTIONS)
    assert validator.login(signed(claims(), algorithm="PS256")).principal == Principal("alice")
    with pytest.raises(InvalidToken, match="RS256 is not that of the key, PS256"):
        validator.login(signed(claims(), algorithm="RS256"))
