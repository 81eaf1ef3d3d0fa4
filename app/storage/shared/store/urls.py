"""The object stores that URLs name.

Amazon S3 and servers with its protocol, Google Cloud Storage, Azure Blob Storage, and directories for tests.
A URL says where the records are; the credentials are those of the environment or of the machine, under the names
that the tools of each provider use.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from obstore.store import AzureStore, GCSStore, LocalStore, S3Store
from stele.wire.notation import parse_boolean

from .aws_profiles import ProfileCredentials, profile_of, region_of
from .obstore import ObstoreStore

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config

_REQUEST_TIMEOUT = timedelta(seconds=30)
_CONNECT_TIMEOUT = timedelta(seconds=5)
_RETRIES_MAX = 2
_RETRY_TIMEOUT = timedelta(seconds=10)
_RETRIES: RetryConfig = {"max_retries": _RETRIES_MAX, "retry_timeout": _RETRY_TIMEOUT}
_DEFAULT_REGION = "us-east-1"
_FORMS = "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY"


def open_object_store(url: str) -> ObstoreStore:
    """Return the store that ``url`` names.

    ``s3://bucket/prefix?endpoint=https://host&region=eu-central-1&path_style=true``, with
    ``payload=unsigned`` to leave the records out of the signature of a PUT, as TLS does by default.
    ``gs://bucket/prefix?endpoint=https://host``.
    ``az://container/prefix?account=name&endpoint=https://host``.
    ``file:///directory`` is made if it does not exist, for its owner alone. All options may be missing.

    Raises:
        ValueError: it is no such URL, or there are no credentials; the text says what is wrong.
    """
    scheme, slashes, rest = url.partition("://")
    place, _, query = (rest if slashes else url).partition("?")
    # No message has the URL, because a password that is not escaped may be in any part of it.
    if "@" in place.partition("/")[0] or "@" in unquote(query):
        raise ValueError(
            "the URL of the object store holds credentials, which would be logged; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY instead, or what the provider of another store reads"
        )
    if scheme not in _OPEN:
        raise ValueError(f"the URL of the object store begins with none of the known schemes; use {_FORMS}")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"the URL of the object store is invalid; use {_FORMS}") from None
    if "#" in url or not url.isprintable():
        raise ValueError(f"the URL of the object store has a fragment or control characters; use {_FORMS}")
    return _OPEN[scheme](parts)


def _open_s3(parts: SplitResult) -> ObstoreStore:
    options = _options(parts, "bucket", {"endpoint", "region", "path_style", "payload"})
    endpoint = options.get("endpoint")
    path_style = parse_boolean(options.get("path_style", "false" if endpoint is None else "true"))
    if path_style is None:
        raise ValueError("path_style of an s3 URL is true or false")
    payload = options.get("payload", "signed" if _is_plain(endpoint) else "unsigned")
    if payload not in ("signed", "unsigned"):
        raise ValueError("payload of an s3 URL is signed or unsigned")
    profile = profile_of(os.environ)
    credentials = None if profile is None else ProfileCredentials(profile)
    region = options.get("region") or region_of(os.environ)
    config: S3Config = {
        "region": region or (credentials and credentials.region) or _DEFAULT_REGION,
        "virtual_hosted_style_request": not path_style,
        # TLS protects the payload; to hash it as well costs four to ten times the CPU time of a PUT.
        "unsigned_payload": payload == "unsigned",
    }
    if endpoint is not None:
        config["endpoint"] = endpoint
    store = S3Store(
        parts.netloc,
        prefix=_prefix(parts),
        config=config,
        client_options=_client(endpoint),
        retry_config=_RETRIES,
        credential_provider=credentials,
    )
    return ObstoreStore(store, is_durable=True)


def _open_gcs(parts: SplitResult) -> ObstoreStore:
    endpoint = _options(parts, "bucket", {"endpoint"}).get("endpoint")
    config: GCSConfig = {} if endpoint is None else {"base_url": endpoint}
    store = GCSStore(
        parts.netloc,
        prefix=_prefix(parts),
        config=config,
        client_options=_client(endpoint),
        retry_config=_RETRIES,
    )
    return ObstoreStore(store, is_durable=True)


def _open_azure(parts: SplitResult) -> ObstoreStore:
    options = _options(parts, "container", {"account", "endpoint"})
    endpoint = options.get("endpoint")
    config: AzureConfig = {}
    if "account" in options:
        config["account_name"] = options["account"]
    elif not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
        raise ValueError(
            "an az URL needs the name of the storage account: az://CONTAINER/PREFIX?account=NAME, or set "
            "AZURE_STORAGE_ACCOUNT_NAME"
        )
    if endpoint is not None:
        config["endpoint"] = endpoint
    store = AzureStore(
        parts.netloc,
        prefix=_prefix(parts),
        config=config,
        client_options=_client(endpoint),
        retry_config=_RETRIES,
    )
    return ObstoreStore(store, is_durable=True)


def _open_directory(parts: SplitResult) -> ObstoreStore:
    if parts.netloc or not parts.path.startswith("/") or parts.query:
        raise ValueError("a file URL has three slashes and an absolute path: file:///DIRECTORY")
    path = Path(parts.path)
    try:
        # As a data directory: all records, and in a replica the users, are readable in it.
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"the directory {path} cannot be made: {error.strerror}") from error
    store = LocalStore(path)
    # It never calls fsync, and lists a directory in the order of the file system.
    return ObstoreStore(store, is_durable=False, is_sorted=False)


_OPEN: dict[str, Callable[[SplitResult], ObstoreStore]] = {
    "s3": _open_s3,
    "gs": _open_gcs,
    "az": _open_azure,
    "file": _open_directory,
}


def _options(parts: SplitResult, host: str, known: set[str]) -> dict[str, str]:
    """Return the options of a URL, all of which are ``known``; its host is a ``host``."""
    scheme = parts.scheme
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - known)
    if not parts.netloc:
        raise ValueError(f"the {scheme} URL needs a {host}: {scheme}://{host.upper()}/PREFIX")
    if ":" in parts.netloc:
        raise ValueError(f"the {scheme} URL names a {host}, which has no port; a server is named by endpoint")
    if unknown:
        name = unknown[0] if unknown[0].isidentifier() else "…"
        raise ValueError(f"unknown option {name!r} of the {scheme} URL; known are {', '.join(sorted(known))}")
    endpoint = options.get("endpoint")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ValueError(f"the endpoint of the {scheme} URL must begin with http:// or https://")
    return options


def _prefix(parts: SplitResult) -> str | None:
    return parts.path.strip("/") or None


def _is_plain(endpoint: str | None) -> bool:
    return endpoint is not None and endpoint.startswith("http://")


def _client(endpoint: str | None) -> ClientConfig:
    return {
        "timeout": _REQUEST_TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        "allow_http": _is_plain(endpoint),
    }
