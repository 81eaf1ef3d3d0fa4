# Generated from async_transport.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking transport: its interface, its choice by URL, and what readers need of its client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from ..config import ClientConfig
from ..errors import SteleClientError
from ..operations.base import Operation
from ..records import NewRecord, RecordMetadata, TopicDescription

R = TypeVar("R")


class Transport(Protocol):
    """Carries operations of any number of threads or gevent greenlets."""

    @property
    def fetches_many(self) -> bool:
        """Whether one Fetch may name several partitions."""
        ...

    @property
    def keeps_order(self) -> bool:
        """Whether the broker executes the operations of ``call_all`` in their order."""
        ...

    @property
    def broker_partitions_by_key(self) -> bool:
        """Whether the broker chooses the partition by key if a produce names none."""
        ...

    def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        """Execute ``operation`` once.

        The response of a caller that is interrupted is dropped.

        Raises:
            BrokerUnavailableError: no connection in time; nothing was sent.
            ConnectionLostError, RequestTimedOutError: the request was sent, and no
                response came.
            SteleClientError: the typed error of the broker.
        """
        ...

    def call_all(self, operations: Sequence[Operation[R]], *, timeout_s: float) -> list[R | SteleClientError]:
        """Execute all operations, in order if the transport keeps order.

        Returns a result or an error per operation, and raises none of them.
        """
        ...

    def close(self) -> None:
        """Close the connections; pending calls fail with ConnectionLostError."""
        ...


class Caller(Protocol):
    """The part of ``Client`` that groups, queues, tables and transactions use.

    A protocol, because ``client`` imports them.
    """

    @property
    def config(self) -> ClientConfig: ...
    @property
    def transport(self) -> Transport: ...
    def call(self, operation: Operation[R], *, timeout_s: float | None = None) -> R: ...
    def produce_many(
        self, topic: str, records: Iterable[NewRecord | bytes | str]
    ) -> list[RecordMetadata]: ...
    def describe_topic(self, topic: str) -> TopicDescription: ...
    def list_offset(self, topic: str, partition: int = 0) -> int | None: ...
    def close(self) -> None: ...


def open_transport(config: ClientConfig) -> Transport:
    """Return the transport for the URL; it connects on first use."""
    endpoint = config.endpoint
    # Imported when selected: importing httpx takes longer than a TCP exchange.
    if endpoint.transport == "tcp":
        from .tcp import TcpTransport

        return TcpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
    from .http import HttpTransport

    return HttpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
