"""The asyncio deserializer: framed bytes → values, whatever schema they were written with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, cast

from ..async_concurrency import AsyncMonitor, run_at_once
from ..errors import RegistryError
from ..schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from ..schemas.framing import NotFramed
from ..serializers import AsyncPreparingDeserializer, HeadedValue, Headers
from .codecs import Decode
from .frames import SchemaKey, schema_key, unframe

T = TypeVar("T")

# Schemas whose decoders are kept, besides those of what is prepared at once.
WRITERS_MAX = 1000
# How long it is remembered that the registry has no such schema, or that it cannot be used.
REFUSED_FOR_S = 10.0


class _Writer(NamedTuple):
    """How values of a schema are decoded, or why they cannot be until ``until_s``."""

    decode: Decode | None
    refusal: str = ""
    until_s: float = 0.0


class AsyncLoad(Protocol):
    """Loads and parses a schema of the registry."""

    async def __call__(self, schema: SchemaKey, /) -> ParsedSchema: ...


class AsyncSchemaDeserializer(AsyncPreparingDeserializer[T]):
    """Reads framed values, each with the schema that it was written with.

    It is a deserializer for ``AsyncConsumer`` and ``AsyncClient.table``, which load the schemas of what
    they fetch. Elsewhere use ``deserialize``. None, which other Kafka clients pass, stays None.
    """

    def __init__(
        self,
        load: AsyncLoad,
        decode_of: Callable[[ParsedSchema], Decode],
        *,
        is_key: bool,
    ) -> None:
        self._load = load
        self._decode_of = decode_of
        self._is_key = is_key
        # Guards the writers.
        self._state = AsyncMonitor()
        self._writers: dict[SchemaKey, _Writer] = {}

    def __call__(self, data: bytes | None, headers: Headers = ()) -> T:
        """Return a value whose schema has been loaded.

        Raises:
            InvalidValue: the bytes name no schema, it is unknown, or it does not describe them.
        """
        if data is None:
            return cast("T", None)
        try:
            framed = unframe(data, headers, is_key=self._is_key)
        except NotFramed as error:
            raise InvalidValue("", f"it names no schema: {error}") from None
        writer = self._writers.get(framed.schema)
        if writer is None or (writer.decode is None and writer.until_s < time.monotonic()):
            run_at_once(partial(self.prepare, [(data, headers)]))
            writer = self._writers.get(framed.schema)
        if writer is None:
            raise InvalidValue("", f"schema {framed.schema} is not loaded; use ``deserialize``")
        if writer.decode is None:
            raise InvalidValue("", writer.refusal)
        return writer.decode(framed)

    async def deserialize(self, data: bytes | None, headers: Headers = ()) -> T:
        """Return a value; load its schema first if that is necessary.

        Raises:
            InvalidValue: as for a call.
            SteleClientError: the registry does not answer, or refuses the request.
        """
        if data is not None:
            await self.prepare([(data, headers)])
        return self(data, headers)

    async def prepare(self, values: Iterable[HeadedValue]) -> None:
        """Load the schemas of values.

        Raises:
            SteleClientError: the registry does not answer, or refuses the request.
        """
        keys = {schema_key(data, headers, is_key=self._is_key) for data, headers in values}
        needed = {key for key in keys if key is not None}
        for schema in needed:
            writer = self._writers.get(schema)
            if writer is None or (writer.decode is None and writer.until_s < time.monotonic()):
                writer = await self._writer(schema)
                with self._state:
                    self._writers[schema] = writer
        if len(self._writers) > WRITERS_MAX:
            with self._state:
                for schema in list(self._writers)[:-WRITERS_MAX]:
                    if schema not in needed:
                        del self._writers[schema]

    async def _writer(self, schema: SchemaKey) -> _Writer:
        try:
            return _Writer(self._decode_of(await self._load(schema)))
        except (RegistryError, InvalidSchema) as error:
            if isinstance(error, RegistryError) and error.retriable:
                raise
            refusal = f"schema {schema} cannot be used: {error}"
            return _Writer(None, refusal, time.monotonic() + REFUSED_FOR_S)
