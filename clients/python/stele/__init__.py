"""The client library of Stele: produce to and consume from a broker.

::

    async with AsyncClient("stele://127.0.0.1:9009") as client:
        await client.produce("orders", b"first")
        async with AsyncConsumer(client, "orders", start="earliest") as consumer:
            async for record in consumer:
                print(record.offset, record.value)

The URL selects the transport: ``stele://`` the binary protocol, ``http://`` HTTP. The
interface is the same. ``Client``, ``Producer`` and ``Consumer`` are the
blocking counterparts.

Names are imported on first use, because the broker imports ``stele.wire`` and should
not load an HTTP client at its start.

Reading order. A module imports only modules of the lines above its own, or of its own
package (``make lint`` checks this). Modules on one line do not import each other:

- ``schemas``, ``wire``                                       the shared formats: pure functions over bytes
- ``credentials``, ``forks``                                  what a client logs in with; renewal in a forked child
- ``config``, ``partitioners``, ``records``, ``serializers``  URL and timeouts; records as the caller sees them
- ``errors``                                                  the exceptions
- ``async_concurrency``, ``concurrency``                      what tasks and threads do differently
- ``operations``                                              one class per request: its frame, its HTTP request
- ``calls``, ``transport``                                    arguments → operations; operations → the broker
- ``grouping``, ``registry``, ``tables``                      reading as a group; schemas; compacted topics as mappings
- ``columns``                                                 values with a schema as columns of Arrow
- ``transactions``                                            what becomes visible together
- ``async_client``, ``client``                                single calls
- ``consuming``, ``producing``                                readers that keep a position; batching writers
- ``broker_process``, ``shared``, ``supervised``              a broker in its own process; one client per event loop; processes beside a broker
- ``cdc``, ``fastapi``, ``iceberg``, ``mirror``, ``spark``, ``sql``, ``testing``   integrations: PostgreSQL, FastAPI, Iceberg, Kafka, Spark, DuckDB, pytest
- ``commands``                                                the subcommands of ``stele``
- ``cli``                                                     the console script

Readers and writers exist twice, for asyncio and for threads, which do not wrap an event loop,
because under gevent none can run. What both decide without I/O is in ``calls`` and in the ``core``
of each package. A module whose first line says so is generated from its asyncio counterpart:
edit that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_client import AsyncClient as AsyncClient
    from .client import Client as Client
    from .consuming.async_consumer import AsyncConsumer as AsyncConsumer
    from .consuming.consumer import Consumer as Consumer
    from .errors import AuthenticationError as AuthenticationError
    from .errors import BrokerUnavailableError as BrokerUnavailableError
    from .errors import ConnectionLostError as ConnectionLostError
    from .errors import DeserializationError as DeserializationError
    from .errors import GroupError as GroupError
    from .errors import IncompatibleSchemaError as IncompatibleSchemaError
    from .errors import InvalidRecordError as InvalidRecordError
    from .errors import InvalidRequestError as InvalidRequestError
    from .errors import LeaseLostError as LeaseLostError
    from .errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from .errors import ProduceError as ProduceError
    from .errors import RecordTooLargeError as RecordTooLargeError
    from .errors import RegistryError as RegistryError
    from .errors import RequestTimedOutError as RequestTimedOutError
    from .errors import SteleClientError as SteleClientError
    from .errors import StorageFailedError as StorageFailedError
    from .errors import TopicExistsError as TopicExistsError
    from .errors import TransactionError as TransactionError
    from .errors import TransactionFencedError as TransactionFencedError
    from .errors import UnexpectedEndError as UnexpectedEndError
    from .errors import UnknownSchemaError as UnknownSchemaError
    from .errors import UnknownTopicError as UnknownTopicError
    from .producing.async_producer import AsyncProducer as AsyncProducer
    from .producing.producer import Producer as Producer
    from .records import NewRecord as NewRecord
    from .records import Record as Record
    from .records import RecordMetadata as RecordMetadata
    from .records import TopicPartition as TopicPartition
    from .registry.async_registry import AsyncSchemaRegistry as AsyncSchemaRegistry
    from .registry.definitions import Schema as Schema
    from .registry.registry import SchemaRegistry as SchemaRegistry
    from .schemas.definitions import Reference as Reference
    from .tables.async_table import AsyncTable as AsyncTable
    from .tables.core import Change as Change
    from .tables.table import Table as Table
    from .wire.compression import Compression as Compression
    from .wire.messages import Durability as Durability

_HOMES = {
    "AsyncClient": ".async_client",
    "AsyncConsumer": ".consuming.async_consumer",
    "AsyncProducer": ".producing.async_producer",
    "AsyncSchemaRegistry": ".registry.async_registry",
    "AsyncTable": ".tables.async_table",
    "AuthenticationError": ".errors",
    "BrokerUnavailableError": ".errors",
    "Change": ".tables.core",
    "Client": ".client",
    "Compression": ".wire.compression",
    "ConnectionLostError": ".errors",
    "Consumer": ".consuming.consumer",
    "DeserializationError": ".errors",
    "Durability": ".wire.messages",
    "GroupError": ".errors",
    "IncompatibleSchemaError": ".errors",
    "InvalidRecordError": ".errors",
    "InvalidRequestError": ".errors",
    "LeaseLostError": ".errors",
    "NewRecord": ".records",
    "OffsetOutOfRangeError": ".errors",
    "ProduceError": ".errors",
    "Producer": ".producing.producer",
    "Record": ".records",
    "RecordMetadata": ".records",
    "RecordTooLargeError": ".errors",
    "Reference": ".schemas.definitions",
    "RegistryError": ".errors",
    "RequestTimedOutError": ".errors",
    "Schema": ".registry.definitions",
    "SchemaRegistry": ".registry.registry",
    "SteleClientError": ".errors",
    "StorageFailedError": ".errors",
    "Table": ".tables.table",
    "TopicExistsError": ".errors",
    "TopicPartition": ".records",
    "TransactionError": ".errors",
    "TransactionFencedError": ".errors",
    "UnexpectedEndError": ".errors",
    "UnknownSchemaError": ".errors",
    "UnknownTopicError": ".errors",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'stele' has no attribute {name!r}")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
