"""The login of a connection (ADR-0033)."""

from __future__ import annotations

from ..schema import Bool, Int64
from .base import Request, Response, message
from .frame_types import MessageType


@message(MessageType.AUTHENTICATE_REQUEST)
class AuthenticateRequest(Request):
    """A message of the client within a SASL exchange; the first one begins the exchange."""

    mechanism: str
    data: bytes

    def __repr__(self) -> str:
        return f"AuthenticateRequest({self.mechanism!r})"


@message(MessageType.AUTHENTICATE_RESPONSE)
class AuthenticateResponse(Response):
    """The answer of the broker: a challenge, or with ``is_done`` the end of the exchange.

    ``lifetime_ms``: log in again within this time; 0 if the login has no end.
    """

    is_done: Bool
    lifetime_ms: Int64 = 0
    data: bytes = b""
