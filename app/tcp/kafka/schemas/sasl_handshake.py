"""SaslHandshake (api key 17): chooses the SASL mechanism (KIP-43)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Int16, message

from ..api import Api


@message
class SaslHandshakeRequest:
    mechanism: str


@message
class SaslHandshakeResponse:
    error_code: Int16
    mechanisms: Sequence[str]


API = Api(
    key=17,
    name="SaslHandshake",
    versions=(0, 1),
    flexible_since=None,
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
)
