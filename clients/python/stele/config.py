"""The broker's URL and the timeouts of a client, from arguments or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

DEFAULT_HOST = "127.0.0.1"
DEFAULT_TCP_PORT = 9009
DEFAULT_HTTP_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The URL and timeouts of a client.

    ``url``: ``stele://host:port`` (binary protocol) or ``http://host:port``.
    ``timeout_s``: the most a call may take, not counting the wait of a long poll.
    ``connect_timeout_s``: how long a call tries to connect, with growing pauses,
    before it raises ``BrokerUnavailableError``; at most the timeout of the call.
    """

    url: str
    timeout_s: float = 30.0
    connect_timeout_s: float = 3.0

    def __post_init__(self) -> None:
        Endpoint.parse(self.url)
        if self.timeout_s <= 0 or self.connect_timeout_s <= 0:
            raise ValueError("timeout_s and connect_timeout_s must be greater than 0")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A parsed URL; ``http_url`` is the base URL if the transport is HTTP."""

    transport: Literal["tcp", "http"]
    host: str
    port: int
    http_url: str = ""

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Parse a ``stele://``, ``http://`` or ``https://`` URL. Raises ValueError for others."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{url!r} has no valid port: {error}") from error
        if not parts.hostname or parts.scheme not in ("stele", "http", "https"):
            raise ValueError(
                f"{url!r} is not the URL of a broker; write stele://HOST:9009 (binary protocol) "
                "or http://HOST:8080"
            )
        if parts.scheme == "stele":
            if parts.path.strip("/") or parts.query:
                raise ValueError(f"{url!r} has a path or a query; write the URL as stele://HOST:PORT")
            return cls("tcp", parts.hostname, port or DEFAULT_TCP_PORT)
        default_port = 443 if parts.scheme == "https" else 80
        return cls("http", parts.hostname, port or default_port, url.rstrip("/"))


def url_from_environment(environment: Mapping[str, str] | None = None) -> str:
    """Read the broker's URL from environment variables.

    ``STELE_URL`` takes precedence. Otherwise ``STELE_CLIENT_TCP_ENABLED`` selects
    ``stele://STELE_CLIENT_TCP_HOST:STELE_CLIENT_TCP_PORT`` or
    ``STELE_CLIENT_HTTP_URL``. If it is not set, HTTP is used when only its URL is set.

    Raises:
        ValueError: a variable has an invalid value; the message names it.
    """
    env = os.environ if environment is None else environment
    if url := env.get("STELE_URL"):
        return url
    host, port = env.get("STELE_CLIENT_TCP_HOST"), env.get("STELE_CLIENT_TCP_PORT")
    http_url = env.get("STELE_CLIENT_HTTP_URL")
    enabled = env.get("STELE_CLIENT_TCP_ENABLED")
    use_tcp = not http_url or bool(host or port) if not enabled else _boolean(enabled)
    if not use_tcp:
        return http_url or DEFAULT_HTTP_URL
    if port and not (port.isascii() and port.isdigit()):
        raise ValueError(f"STELE_CLIENT_TCP_PORT is {port!r}; it must be a port number")
    host = host or DEFAULT_HOST
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"stele://{host}:{port or DEFAULT_TCP_PORT}"


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "1" | "true" | "yes" | "on":
            return True
        case "0" | "false" | "no" | "off":
            return False
        case _:
            raise ValueError(f"STELE_CLIENT_TCP_ENABLED is {text!r}; it must be true or false")
