"""Decode the bodies of requests (RFC 9110, 8.4), for every route.

A body is decoded piece by piece as it is read, so limits count what it contains, and little of it is ever decoded
ahead. The quota of a producer counts the bytes that were sent.
"""

from __future__ import annotations

import zlib
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...work_budget import pause
from ..errors import HttpError, http_problem, problem_response
from .exchange import BODY

# Decoded in one turn of the loop, which takes about 50 µs.
_PIECE_BYTES = 64 * 1024
# The window bits of zlib by coding: with the head of gzip, or with that of zlib.
_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
_OFFERED = "gzip, deflate"
_NONE = frozenset((b"", b"identity"))


class HeldBody(Protocol):
    """Counts the bytes of a body that are in memory; see ``Exchange``."""

    def hold(self, count: int) -> None: ...
    def release(self, count: int) -> None: ...


class DecodeBodies:
    """ASGI middleware that decodes the body of a request, or refuses it with 415."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        codings: list[bytes] = []
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if name == b"content-encoding":
                    codings += [coding.strip().lower() for coding in value.split(b",")]
        coded = [coding for coding in codings if coding not in _NONE]
        if not coded:
            await self._app(scope, receive, send)
        elif len(coded) == 1 and coded[0] in _WINDOW_BITS:
            body = _Decoded(receive, _WINDOW_BITS[coded[0]], scope.get(BODY), is_there=is_framed(scope))
            await self._app(scope, body.receive, send)
        elif _has_body(scope):
            sent = b", ".join(coded)[:100].decode("latin-1")
            problem = http_problem(
                415, f"Content-Encoding is {sent!r}; send {_OFFERED}, or the body as it is"
            )
            await problem_response(problem, headers={"Accept-Encoding": _OFFERED})(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def is_framed(scope: Scope) -> bool:
    """Return whether a request has a body, which may be empty (RFC 9112, section 6.3)."""
    return any(name in (b"transfer-encoding", b"content-length") for name, _ in scope["headers"])


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


class _Decoded:
    """The decoded body of one request; ``is_there`` unless it has none at all.

    Not even an empty body is coded as no bytes.
    """

    def __init__(self, receive: Receive, window_bits: int, held: HeldBody | None, *, is_there: bool) -> None:
        self._receive = receive
        self._window_bits = window_bits
        self._held = held
        self._decoder: Any = zlib.decompressobj(window_bits) if is_there else None
        # What has been received and not decoded; whether the decoder may have more of what it got.
        self._coded = b""
        self._has_more = False
        self._is_whole = False
        self._is_ended = False

    async def receive(self) -> Message:
        while not self._is_ended:
            if self._coded or self._has_more:
                piece = self._next_piece()
                if piece and self._held is not None:
                    self._held.hold(len(piece))
                await pause()
                if piece:
                    return {"type": "http.request", "body": piece, "more_body": True}
            elif self._is_whole:
                self._is_ended = True
                if self._decoder is not None:
                    raise HttpError(400, "the body ends before its Content-Encoding does; send all of it")
                return {"type": "http.request", "body": b"", "more_body": False}
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._coded = message.get("body", b"")
                self._is_whole = not message.get("more_body", False)
        return await self._receive()

    def _next_piece(self) -> bytes:
        decoder = self._decoder
        if decoder is None:
            decoder = self._decoder = zlib.decompressobj(self._window_bits)
        before = len(self._coded)
        try:
            piece: bytes = decoder.decompress(self._coded, _PIECE_BYTES)
        except zlib.error as error:
            self._is_ended = True
            raise HttpError(400, f"the body is not coded as its Content-Encoding says: {error}") from error
        self._coded = decoder.unconsumed_tail
        self._has_more = len(piece) == _PIECE_BYTES
        if decoder.eof:
            # Gzip files may be concatenated; each has a decoder of its own.
            self._coded, self._has_more, self._decoder = decoder.unused_data, False, None
        if self._held is not None:
            self._held.release(before - len(self._coded))
        return piece
