"""Validate the signature and the claims of JSON Web Tokens (RFC 7519, RFC 8725).

The claims are issuer, audience, times and subject.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from .acl import WILDCARD
from .jwt_keys import IssuerKey
from .principal import ANONYMOUS, Login, Principal

# Asymmetric only, each with the type of its key: a token cannot choose what its signature means.
_ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
_LEEWAY_S = 30
_TOKEN_CHARACTERS_MAX = 16_384
_KEY_ID_CHARACTERS_MAX = 1000
_NAME_CHARACTERS_MAX = 255


class InvalidToken(ValueError):
    """A token was refused; the reason is for the log, not for the client."""


class KeySource(Protocol):
    def find(self, key_id: str) -> IssuerKey | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtOptions:
    """Required claims of a token; ``principal_claim`` names the user."""

    issuer: str
    audience: str
    principal_claim: str = "sub"


class JwtValidator:
    """Needs the packages of the extra ``oauth``."""

    def __init__(self, keys: KeySource, options: JwtOptions) -> None:
        self._keys = keys
        self._options = options

    def login(self, token: str) -> Login:
        """Return the login of ``token``.

        Raises:
            InvalidToken: it is not valid.
        """
        import jwt

        if len(token) > _TOKEN_CHARACTERS_MAX:
            raise InvalidToken(f"the token has {len(token)} characters")
        try:
            header: dict[str, Any] = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise InvalidToken(str(error)) from error
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
            raise InvalidToken(f"algorithm {str(algorithm)[:40]!r} is not allowed")
        if not isinstance(key_id, str) or len(key_id) > _KEY_ID_CHARACTERS_MAX:
            raise InvalidToken("the key id is malformed")
        key = self._keys.find(key_id)
        if key is None:
            raise InvalidToken(f"key {key_id[:100]!r} is not one of the issuer")
        if key.jwk.key_type != _ALGORITHMS[algorithm]:
            raise InvalidToken(f"algorithm {algorithm} does not fit the key, of type {key.jwk.key_type}")
        if key.algorithm not in (None, algorithm):
            raise InvalidToken(f"algorithm {algorithm} is not that of the key, {str(key.algorithm)[:40]}")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.jwk.key,
                algorithms=[algorithm],
                audience=self._options.audience,
                issuer=self._options.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (jwt.PyJWTError, TypeError, ValueError) as error:
            raise InvalidToken(str(error)) from error
        name = claims.get(self._options.principal_claim)
        # Lists and numbers would become names that no issuer chose (CVE-2026-75509).
        if not isinstance(claims.get("iss"), str) or not isinstance(name, str):
            raise InvalidToken(f"the claim {self._options.principal_claim!r} is not a text")
        if not 0 < len(name) <= _NAME_CHARACTERS_MAX or not name.isprintable():
            raise InvalidToken("the name of the principal is not valid")
        # The first would have no login, and the second means every principal in access rules.
        if name in (ANONYMOUS.name, WILDCARD):
            raise InvalidToken(f"the name {name!r} is reserved")
        return Login(
            principal=Principal(name), mechanism="OAUTHBEARER", expires_at_ms=int(claims["exp"]) * 1000
        )
