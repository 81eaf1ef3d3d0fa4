"""The schema registry of a broker, found by asking the broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ..config import ClientConfig, broker_urls, http_url_of, joined_urls, shown_url
from ..errors import BrokerUnavailableError, UnsupportedOperationError
from ..operations.base import Operation
from ..operations.topics import HttpListener, RegistryListener, http_listener_url
from ..transport.transport import open_transport

R = TypeVar("R")


def registry_config(config: ClientConfig) -> ClientConfig:
    """Return the configuration of a client of the registry of a broker, with the same login.

    Each broker that the URL names is asked; those that cannot be reached are left out.

    Raises:
        UnsupportedOperationError: a broker has no registry, or one without TLS unlike the URL.
        SteleClientError: no broker can be reached, or it refuses the login.
    """
    found: list[str] = []
    failure: BrokerUnavailableError | None = None
    for url in broker_urls(config.url):
        try:
            found.append(_registry_of(replace(config, url=url)))
        except BrokerUnavailableError as error:
            failure = error
    if not found:
        raise failure or ValueError("the URL names no broker")
    return replace(config, url=joined_urls(found))


def _registry_of(config: ClientConfig) -> str:
    url, shown = config.url, shown_url(config.url)
    if config.endpoint.transport == "tcp":
        listener = _ask(config, HttpListener())
        try:
            url = http_listener_url(url, listener)
        except UnsupportedOperationError as error:
            raise UnsupportedOperationError(
                f"{error}, and it tells where the registry is; name the registry"
            ) from error
    port = _ask(replace(config, url=url), RegistryListener())
    if port is None:
        raise UnsupportedOperationError(f"the broker at {shown} has no schema registry; name another one")
    return http_url_of(url, port, has_tls=url.startswith("https://"))


def _ask(config: ClientConfig, operation: Operation[R]) -> R:
    transport = open_transport(config)
    try:
        return transport.call(operation, timeout_s=config.timeout_s)
    finally:
        transport.close()
