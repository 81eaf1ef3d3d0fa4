"""The public keys of a token issuer (JWKS, RFC 7517), from a file or a URL.

They are refreshed in the background.

A request never waits for the issuer: a token with an unknown key is refused, and the
keys are fetched again, at most once a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ..clock import Clock

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

REFRESH_S = 3600.0
_RETRY_FIRST_S, _RETRY_MAX_S = 0.1, 10.0
_REFETCH_MS = 60_000
_FETCH_TIMEOUT_S = 10.0
_JWKS_BYTES_MAX = 1024 * 1024
_KEYS_MAX = 1000
_KEY_TYPES = ("RSA", "EC", "OKP")


class InvalidKeys(ValueError):
    """The issuer's keys cannot be read."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A key, and the algorithm that its issuer allows (RFC 7517, ``alg``).

    The algorithm is None if the issuer names none.
    """

    jwk: PyJWK
    algorithm: str | None


def parse_keys(data: bytes) -> dict[str, IssuerKey]:
    """Return the keys that can verify signatures, by key id; "" is that of a key without one.

    Raises:
        InvalidKeys: the text is no JWKS, or has no such key.
    """
    from jwt import PyJWK, PyJWTError

    try:
        listed = cast("list[dict[str, Any]]", json.loads(data)["keys"])[:_KEYS_MAX]
        kinds = [entry["kty"] for entry in listed]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidKeys("it is not a JSON Web Key Set (RFC 7517)") from error
    keys: dict[str, IssuerKey] = {}
    for kind, entry in zip(kinds, listed, strict=True):
        # A symmetric key would let every reader of the set sign tokens (CVE-2022-29217).
        if kind not in _KEY_TYPES or entry.get("use") == "enc":
            continue
        try:
            keys[str(entry.get("kid", ""))] = IssuerKey(PyJWK.from_dict(entry), entry.get("alg"))
        except (PyJWTError, ValueError, TypeError) as error:
            logger.warning("a key of the token issuer is left out: %s", error)
    if not keys:
        raise InvalidKeys("it has no RSA, EC or OKP key for signatures")
    return keys


class JwtKeys:
    """Keeps the keys.

    ``source`` is a file or an https URL; http is for this machine only.
    """

    def __init__(self, source: str, *, clock: Clock) -> None:
        """Raises ValueError if ``source`` is neither."""
        try:
            parts = urlsplit(source)
        except ValueError:
            raise ValueError("oauth_jwks is neither a file nor a valid URL") from None
        if ":" in source and "@" in source:
            raise ValueError("oauth_jwks holds a login, which would be logged; use a URL without one")
        self._url = source if parts.scheme in ("http", "https") else None
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
            raise ValueError("oauth_jwks is not encrypted, so its keys could be replaced; use https")
        if self._url is None and "://" in source:
            raise ValueError("oauth_jwks is neither a file nor an https URL")
        self._source = source
        self._clock = clock
        self._keys: dict[str, IssuerKey] = {}
        self._loop = asyncio.get_running_loop()
        self._refresh = asyncio.Event()
        self._refetched_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the keys once, and keep them fresh from now on."""
        is_loaded = await self._load()
        self._task = asyncio.create_task(self._run(is_loaded))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def find(self, key_id: str) -> IssuerKey | None:
        """Return the key; if it is unknown, fetch the keys soon.

        May be called in a thread.
        """
        key = self._keys.get(key_id)
        if key is None:
            now_ms = self._clock.monotonic_ms()
            if self._refetched_ms is None or now_ms - self._refetched_ms >= _REFETCH_MS:
                self._refetched_ms = now_ms
                self._loop.call_soon_threadsafe(self._refresh.set)
        return key

    async def _run(self, is_loaded: bool) -> None:
        retry_s = _RETRY_FIRST_S
        while True:
            retry_s = _RETRY_FIRST_S if is_loaded else min(retry_s * 2, _RETRY_MAX_S)
            try:
                async with asyncio.timeout(REFRESH_S if is_loaded else retry_s):
                    await self._refresh.wait()
            except TimeoutError:
                pass
            self._refresh.clear()
            is_loaded = await self._load()

    async def _load(self) -> bool:
        """Fetch the keys; keep the old ones if that fails."""
        try:
            data = await (self._read() if self._url is None else self._fetch(self._url))
            self._keys = await asyncio.to_thread(parse_keys, data)
        except (OSError, InvalidKeys) as error:
            logger.error("the keys of the token issuer at %s cannot be loaded: %s", self._source, error)
            return False
        return True

    async def _read(self) -> bytes:
        data = await asyncio.to_thread(Path(self._source).read_bytes)
        return _bounded(data)

    async def _fetch(self, url: str) -> bytes:
        import httpx

        try:
            async with (
                httpx.AsyncClient(timeout=_FETCH_TIMEOUT_S, follow_redirects=False) as client,
                client.stream("GET", url) as response,
            ):
                response.raise_for_status()
                data = b""
                async for piece in response.aiter_bytes():
                    data = _bounded(data + piece)
                return data
        except httpx.HTTPError as error:
            raise OSError(f"{type(error).__name__}: {error}") from error


def _bounded(data: bytes) -> bytes:
    if len(data) > _JWKS_BYTES_MAX:
        raise InvalidKeys(f"it has more than {_JWKS_BYTES_MAX} bytes")
    return data
