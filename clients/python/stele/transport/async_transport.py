"""The asyncio transport: its interface, its choice by URL, and what readers need of its client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from ..config import ClientConfig
from ..errors import SteleClientError
from ..operations.base import Operation
from ..records import NewRecord, RecordMetadata, TopicDescription

R = TypeVar("R")


class AsyncTransport(Protocol):
    """Carries operations of one event loop; any number of tasks may call at once."""

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

    async def call(self, operation: Operation[R], *, timeout_s: float) -> R:
        """Execute ``operation`` once.

        The response of a caller that is interrupted is dropped.

        Raises:
            BrokerUnavailableError: no connection in time; nothing was sent.
            ConnectionLostError, RequestTimedOutError: the request was sent, and no
                response came.
            SteleClientError: the typed error of the broker.
        """
        ...

    async def call_all(
        self, operations: Sequence[Operation[R]], *, timeout_s: float
    ) -> list[R | SteleClientError]:
        """Execute all operations, in order if the transport keeps order.

        Returns a result or an error per operation, and raises none of them.
        """
        ...

    async def close(self) -> None:
        """Close the connections; pending calls fail with ConnectionLostError."""
        ...


class AsyncCaller(Protocol):
    """The part of ``AsyncClient`` that groups, queues, tables and transactions use.

    A protocol, because ``async_client`` imports them.
    """

    @property
    def config(self) -> ClientConfig: ...
    @property
    def transport(self) -> AsyncTransport: ...
    async def call(self, operation: Operation[R], *, timeout_s: float | None = None) -> R: ...
    async def produce_many(
        self, topic: str, records: Iterable[NewRecord | bytes | str]
    ) -> list[RecordMetadata]: ...
    async def describe_topic(self, topic: str) -> TopicDescription: ...
    async def list_offset(self, topic: str, partition: int = 0) -> int | None: ...
    async def close(self) -> None: ...


def open_async_transport(config: ClientConfig) -> AsyncTransport:
    """Return the transport for the URL; it connects on first use."""
    endpoint = config.endpoint
    # Imported when selected: importing httpx takes longer than a TCP exchange.
    if endpoint.transport == "tcp":
        from .async_tcp import AsyncTcpTransport

        return AsyncTcpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
    from .async_http import AsyncHttpTransport

    return AsyncHttpTransport(endpoint, connect_timeout_s=config.connect_timeout_s)
