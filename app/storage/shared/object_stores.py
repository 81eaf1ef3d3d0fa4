"""Object stores over obstore.

S3 and what speaks its protocol, and directories for tests.

Objects are written in one PUT, never in parts: a part that is left behind by a crash costs money and is
invisible. Requests are retried twice at most, quickly; how long to go on is for the engine to say,
because it knows how long a client still waits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, S3Store

from .objects import LIST_MAX, Buffer, ByteRange, ObjectNotFound, ObjectStoreError, StoredObject

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_REQUEST_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_RETRIES_MAX = 2
_RETRY_TIMEOUT = timedelta(seconds=10)
# Ranges that are so close to each other are read by one request.
_JOINED_BYTES = 128 * 1024

_S3_OPTIONS = frozenset({"endpoint", "region", "path_style", "payload"})
_DEFAULT_REGION = "us-east-1"


def open_object_store(url: str) -> ObstoreStore:
    """Return the store that ``url`` names.

    ``s3://bucket/prefix?endpoint=https://host&region=eu-central-1&path_style=true``: all options may be missing.
    ``payload=unsigned`` leaves the records out of the signature of a PUT, as TLS does by default.
    Credentials are those of the environment (``AWS_ACCESS_KEY_ID`` and so on) or of the machine.
    ``file:///directory`` is made if it does not exist.

    Raises:
        ValueError: it is no such URL; the text says what is wrong.
    """
    parts = urlsplit(url)
    endpoints = [value for name, value in parse_qsl(parts.query) if name == "endpoint"]
    if any("@" in part for part in (parts.netloc, url.partition("?")[0].partition("/")[0], *endpoints)):
        raise ValueError(
            "the URL of the object store holds credentials, which would be logged; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY instead"
        )
    if parts.scheme == "s3":
        return _open_s3(parts)
    if parts.scheme == "file":
        return _open_directory(parts)
    raise ValueError(f"{url!r} is no object store; use s3://BUCKET/PREFIX or file:///DIRECTORY")


def _open_s3(parts: SplitResult) -> ObstoreStore:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - _S3_OPTIONS)
    if not parts.netloc:
        raise ValueError("an s3 URL needs a bucket: s3://BUCKET/PREFIX")
    if unknown:
        raise ValueError(
            f"unknown option {unknown[0]!r} of an s3 URL; known are {', '.join(sorted(_S3_OPTIONS))}"
        )
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ValueError(f"the endpoint {endpoint!r} of an s3 URL must begin with http:// or https://")
    path_style = options.get("path_style", "false" if endpoint is None else "true")
    if path_style not in ("true", "false"):
        raise ValueError("path_style of an s3 URL is true or false")
    is_plain = endpoint is not None and endpoint.startswith("http://")
    payload = options.get("payload", "signed" if is_plain else "unsigned")
    if payload not in ("signed", "unsigned"):
        raise ValueError("payload of an s3 URL is signed or unsigned")
    config: S3Config = {
        "region": options.get("region", _DEFAULT_REGION),
        "virtual_hosted_style_request": path_style == "false",
        # TLS protects the payload; to hash it as well costs four to ten times the CPU time of a PUT.
        "unsigned_payload": payload == "unsigned",
    }
    if endpoint is not None:
        config["endpoint"] = endpoint
    client: ClientConfig = {
        "timeout": _REQUEST_TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        "allow_http": is_plain,
    }
    retries: RetryConfig = {"max_retries": _RETRIES_MAX, "retry_timeout": _RETRY_TIMEOUT}
    store = S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=config,
        client_options=client,
        retry_config=retries,
    )
    return ObstoreStore(store, is_durable=True)


def _open_directory(parts: SplitResult) -> ObstoreStore:
    if parts.netloc or not parts.path.startswith("/") or parts.query:
        raise ValueError("a file URL has three slashes and an absolute path: file:///DIRECTORY")
    store = LocalStore(Path(parts.path), mkdir=True)
    # It never calls fsync, and lists a directory in the order of the file system.
    return ObstoreStore(store, is_durable=False, is_sorted=False)


class ObstoreStore:
    """Implements ``ObjectStore``. ``is_sorted``: the store lists by key."""

    def __init__(self, store: S3Store | LocalStore, *, is_durable: bool, is_sorted: bool = True) -> None:
        self._store = store
        self._is_durable = is_durable
        self._is_sorted = is_sorted

    @property
    def is_durable(self) -> bool:
        return self._is_durable

    async def put(self, key: str, data: Buffer) -> None:
        async with _errors(key):
            await obstore.put_async(self._store, key, data, use_multipart=False)

    async def get_ranges(self, key: str, ranges: Sequence[ByteRange]) -> list[bytes]:
        async with _errors(key):
            parts = await obstore.get_ranges_async(
                self._store,
                key,
                starts=[part.start for part in ranges],
                ends=[part.end for part in ranges],
                coalesce=_JOINED_BYTES,
            )
        for part, asked in zip(parts, ranges, strict=True):
            if len(part) != asked.end - asked.start:
                raise ObjectStoreError(f"object {key!r} ends before byte {asked.end}")
        return [part.to_bytes() for part in parts]

    async def list_page(self, prefix: str, *, after: str = "") -> list[StoredObject]:
        page: list[StoredObject] = []
        async with _errors(prefix):
            stream = obstore.list(self._store, prefix, offset=after or None, chunk_size=LIST_MAX)
            async for chunk in stream:
                page += [StoredObject(entry["path"], entry["size"]) for entry in chunk]
                if self._is_sorted:
                    break
        page.sort()
        return page[:LIST_MAX]

    async def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        async with _errors(keys[0]):
            try:
                await obstore.delete_async(self._store, list(keys))
            except FileNotFoundError:
                # Only directories object to what is gone already, and then stop.
                await self._delete_each(keys)

    async def _delete_each(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                continue

    async def close(self) -> None:
        """Do nothing: connections end with the process."""


@asynccontextmanager
async def _errors(key: str) -> AsyncGenerator[None]:
    """Translate the errors of obstore."""
    try:
        yield
    except FileNotFoundError:
        raise ObjectNotFound(key) from None
    except (BaseError, OSError, ValueError) as error:
        raise ObjectStoreError(f"object {key!r}: {error}") from error
