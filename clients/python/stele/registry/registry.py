# Generated from async_registry.py by clients/python/unasync.py: edit that, then run `make format`.
"""The blocking client of a schema registry."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Unpack, overload

from ..calls import make_config
from ..concurrency import Closing, Monitor, SharedCalls, in_thread, sleep
from ..config import ClientConfig, FilePath, registry_url_from_environment
from ..credentials import LoginOptions
from ..errors import BrokerUnavailableError, SteleClientError
from ..operations.base import segment
from ..schemas.definitions import InvalidSchema, ParsedSchema, Reference
from ..transport.base import backoff
from ..transport.transport import open_transport
from .calls import RegistryCall
from .codecs import (
    Form,
    ProtoFile,
    decode_of,
    encoding_of,
    file_of,
    full_name_of,
    is_message,
    parse,
    schema_of,
)
from .definitions import Compatibility, RegisteredSchema, Schema
from .deserializer import SchemaDeserializer
from .serializer import SchemaSerializer, SerializerOptions, SerializerSettings

R = TypeVar("R")
T = TypeVar("T")

Version = int | Literal["latest"]

# Schemas that a client keeps. They never change, so only the number is bounded.
CACHED_MAX = 1000
# Of one call, at the registries of the URL in turn: about three seconds.
ATTEMPTS_MAX = 9
# Schemas that one uses, directly or not.
REFERENCES_MAX = 1000
# Schemas that a registry lists at once.
PAGE_MAX = 1000


class SchemaRegistry(Closing):
    """A client of a schema registry, over HTTP.

    Any number of threads may use it at once. Without a URL it reads
    STELE_REGISTRY_URL (``http://127.0.0.1:8081``); ``http://host1:8081,host2:8081`` names several
    registries. Files of TLS and the login are those of ``Client``.

    A call takes at most ``timeout_s``. It is repeated after an answer that the registry cannot serve
    it now, or is too busy (408, 429, 500, 502, 503, 504). Errors are subclasses of ``SteleClientError``.
    Schemas by id and by GUID are cached, because they never change.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float | None = None,
        connect_timeout_s: float | None = None,
        ca_file: FilePath | None = None,
        certificate_file: FilePath | None = None,
        key_file: FilePath | None = None,
        config: ClientConfig | None = None,
        **login: Unpack[LoginOptions],
    ) -> None:
        """``config`` takes the place of all other arguments. Raises ValueError for an invalid one."""
        self.config: ClientConfig = config or make_config(
            registry_url_from_environment() if url is None else url,
            timeout_s,
            connect_timeout_s,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            **login,
        )
        if self.config.endpoint.transport != "http":
            raise ValueError("a schema registry is reached over HTTP; write http://HOST:8081 or https://")
        self._transport = open_transport(self.config)
        # Guards the cache.
        self._state = Monitor()
        self._schemas: dict[tuple[str, int | str], Schema] = {}
        self._loads: SharedCalls[tuple[str, int | str], Schema] = SharedCalls()

    def close(self) -> None:
        """Close the connections; pending calls fail."""
        self._transport.close()

    # ── subjects and versions ──

    def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """List the subjects whose names begin with ``prefix``; None is those of all contexts.

        ``deleted`` includes those that are soft-deleted.
        """
        return self._get("/subjects", _texts, subjectPrefix=prefix, deleted=deleted)

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """List the versions of a subject.

        Raises:
            UnknownSchemaError: the registry has no such subject.
        """
        return self._get(f"{_subject(subject)}/versions", _numbers, deleted=deleted)

    def schemas(
        self, prefix: str | None = None, *, latest_only: bool = False, deleted: bool = False
    ) -> list[RegisteredSchema]:
        """List the versions of the subjects whose names begin with ``prefix``, or only their latest ones."""
        listed: list[RegisteredSchema] = []
        while True:
            page = self._get(
                "/schemas",
                _schemas,
                subjectPrefix=prefix,
                latestOnly=latest_only,
                deleted=deleted,
                offset=str(len(listed)),
                limit=str(PAGE_MAX),
            )
            listed += page
            if len(page) < PAGE_MAX:
                return listed

    def version(
        self, subject: str, version: Version = "latest", *, deleted: bool = False
    ) -> RegisteredSchema:
        """Return a version of a subject.

        Raises:
            UnknownSchemaError: the registry has no such subject, or the subject no such version.
        """
        return self._get(_version(subject, version), RegisteredSchema.from_json, deleted=deleted)

    def referenced_by(self, subject: str, version: Version) -> list[int]:
        """Return the ids of the schemas that use a version of a subject."""
        return self._get(f"{_version(subject, version)}/referencedby", _numbers)

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete a subject; return the versions that were deleted.

        Records with its schemas stay readable, and registering brings it back, until it is deleted
        once more with ``permanent``.
        """
        return self._call("DELETE", _subject(subject), _numbers, permanent=permanent)

    def delete_version(self, subject: str, version: Version, *, permanent: bool = False) -> int:
        """Delete a version of a subject, as ``delete_subject`` does; return its number."""
        return self._call("DELETE", _version(subject, version), int, permanent=permanent)

    # ── schemas ──

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Register a schema, or find it if the subject has it already.

        ``normalize``: schemas that differ only in what has no meaning are the same.

        Raises:
            IncompatibleSchemaError: the compatibility level of the subject forbids it.
            RegistryError: it is not a valid schema, or the subject cannot be changed.
        """
        path = f"{_subject(subject)}/versions"
        return self._send("POST", path, subject, schema, normalize=normalize)

    def lookup(
        self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """Return the version of a subject that has this schema.

        Raises:
            UnknownSchemaError: the registry has no such subject, or the subject not this schema.
        """
        path = _subject(subject)
        return self._send("POST", path, subject, schema, normalize=normalize, deleted=deleted)

    def schema(self, id_or_guid: int | str, *, subject: str | None = None) -> Schema:
        """Return the schema with an id, or with a GUID.

        ``subject``: a subject in whose context the id is, such as ``:.context:``; None asks
        the default one.

        Raises:
            UnknownSchemaError: the registry has no such schema.
        """
        key = subject or "", id_or_guid
        cached = self._schemas.get(key)
        return cached if cached is not None else self._loads.call(key, lambda: self._load(key))

    def _load(self, key: tuple[str, int | str]) -> Schema:
        subject, id_or_guid = key
        kind = "ids" if isinstance(id_or_guid, int) else "guids"
        path = f"/schemas/{kind}/{segment(str(id_or_guid))}"
        schema = self._get(path, Schema.from_json, subject=subject or None)
        with self._state:
            while len(self._schemas) >= CACHED_MAX:
                del self._schemas[next(iter(self._schemas))]
            self._schemas[key] = schema
        return schema

    def check(
        self,
        subject: str,
        schema: Schema,
        version: Version | None = None,
        *,
        normalize: bool = False,
    ) -> Compatibility:
        """Return whether a schema is compatible with a version of a subject.

        ``version`` None checks what registering it would check.
        """
        versions = "" if version is None else f"/{version}"
        path = f"/compatibility{_subject(subject)}/versions{versions}"
        return self._call(
            "POST", path, _compatibility, body=schema.as_json(), verbose=True, normalize=normalize
        )

    # ── configuration and mode ──

    def config_of(self, subject: str | None = None) -> dict[str, Any]:
        """Return the configuration that holds for a subject; None is the global one.

        ``compatibilityLevel`` is the level.
        """
        return self._get(_of("/config", subject), _document, defaultToGlobal=True)

    def set_config(self, subject: str | None = None, **config: Any) -> dict[str, Any]:
        """Change the configuration of a subject, or the global one, such as ``compatibility="FULL"``.

        What is not named stays as it is.
        """
        return self._call("PUT", _of("/config", subject), _document, body=config)

    def delete_config(self, subject: str | None = None) -> dict[str, Any]:
        """Remove the configuration of a subject, so that the global one holds; return what it was."""
        return self._call("DELETE", _of("/config", subject), _document)

    def mode_of(self, subject: str | None = None) -> str:
        """Return the mode that holds for a subject; None is the global one."""
        return self._get(_of("/mode", subject), _mode, defaultToGlobal=True)

    def set_mode(self, mode: str, subject: str | None = None, *, force: bool = False) -> str:
        """Set the mode of a subject, or the global one: READWRITE, READONLY or IMPORT."""
        return self._call("PUT", _of("/mode", subject), _mode, body={"mode": mode}, force=force)

    def delete_mode(self, subject: str | None = None) -> str:
        """Remove the mode of a subject, so that the global one holds; return what it was."""
        return self._call("DELETE", _of("/mode", subject), _mode)

    # ── serializers ──

    @overload
    def serializer(
        self, schema: type[T], topic: str | None = None, **options: Unpack[SerializerOptions]
    ) -> SchemaSerializer[T]: ...
    @overload
    def serializer(
        self,
        schema: Schema | str | int | None = None,
        topic: str | None = None,
        **options: Unpack[SerializerOptions],
    ) -> SchemaSerializer[Any]: ...
    def serializer(
        self,
        schema: Schema | str | int | type[Any] | None = None,
        topic: str | None = None,
        **options: Unpack[SerializerOptions],
    ) -> SchemaSerializer[Any]:
        """Return a serializer of values, or of keys, with one schema.

        ``schema``: an Avro schema as text; a ``Schema``; a pydantic model or a dataclass, whose JSON Schema
        it is; a class of a Protobuf message; the id of a schema; None with ``use_latest``. It is registered,
        or found, now. See ``SerializerSettings`` for the options.

        Raises:
            UnknownSchemaError: the subject does not have the schema, which was not to be registered.
            IncompatibleSchemaError: the compatibility level of the subject forbids the schema.
            ValueError: arguments contradict each other, or are missing.
            InvalidSchema: this client cannot use the schema.
        """
        chosen = SerializerSettings(**options)
        if isinstance(schema, int):
            registered = self._with_id(schema, chosen.subject)
            parsed = self.parse(registered.schema, chosen.subject)
            return SchemaSerializer(
                registered, encoding_of(parsed, None, chosen.form, chosen.message), chosen
            )
        cls = schema if isinstance(schema, type) else None
        if chosen.use_latest:
            name = chosen.message or self._name_of(schema)
            registered = self.version(chosen.subject_of(topic, name))
            parsed = self.parse(registered.schema)
        elif schema is None:
            raise ValueError("give a schema, or use_latest=True for the latest one of the subject")
        else:
            given = schema_of(schema)
            if cls is not None and is_message(cls):
                given = self._with_imports(file_of(cls), chosen)
            parsed = self.parse(given)
            subject = chosen.subject_of(topic, chosen.message or full_name_of(parsed, cls))
            registered = self._found(subject, given, chosen)
            if registered.guid is None and chosen.frame == "header":
                registered = self.lookup(subject, given, normalize=chosen.normalize)
        return SchemaSerializer(registered, encoding_of(parsed, cls, chosen.form, chosen.message), chosen)

    def _name_of(self, schema: Schema | str | type[Any] | None) -> str | None:
        """Return the name of the record or message of a schema that is not registered."""
        if schema is None or (isinstance(schema, type) and is_message(schema)):
            return full_name_of(None, schema)
        return (self.parse(schema_of(schema))).full_name

    def _found(self, subject: str, schema: Schema, settings: SerializerSettings) -> RegisteredSchema:
        call = self.register if settings.auto_register else self.lookup
        return call(subject, schema, normalize=settings.normalize)

    @overload
    def deserializer(
        self,
        into: type[T],
        *,
        reader: Schema | str | None = None,
        key: bool = False,
        subject: str | None = None,
    ) -> SchemaDeserializer[T]: ...
    @overload
    def deserializer(
        self,
        into: None = None,
        *,
        reader: Schema | str | None = None,
        key: bool = False,
        subject: str | None = None,
        form: Form = "python",
    ) -> SchemaDeserializer[Any]: ...
    def deserializer(
        self,
        into: type[Any] | None = None,
        *,
        reader: Schema | str | None = None,
        key: bool = False,
        subject: str | None = None,
        form: Form = "python",
    ) -> SchemaDeserializer[Any]:
        """Return a deserializer of values, or of keys, with any schema of the registry.

        ``into``: a pydantic model, a dataclass or a class of a Protobuf message; without it, see
        ``stele.registry.codecs``. ``reader``: the Avro schema that values are converted to, by Avro's
        rules. ``subject``: a subject in whose context the ids are. ``form`` ``json``: values in the JSON form
        of ``stele.schemas``.
        """
        read_with = None if reader is None else self.parse(schema_of(reader), subject)
        if read_with is not None and read_with.type != "AVRO":
            raise ValueError("only values of Avro can be read with another schema than the one they have")

        def load(id_or_guid: int | str) -> ParsedSchema:
            return self.parse(self.schema(id_or_guid, subject=subject), subject)

        return SchemaDeserializer(load, lambda writer: decode_of(writer, into, read_with, form), is_key=key)

    def parse(self, schema: Schema, subject: str | None = None) -> ParsedSchema:
        """Parse a schema with those that it refers to, of the context of ``subject``.

        Raises:
            InvalidSchema: it is not valid, or cannot be used here.
            UnknownSchemaError: the registry lacks a schema that it refers to.
        """
        texts: dict[str, str] = {}
        self._collect(schema, texts, set())
        return in_thread(parse, schema, texts)

    def _collect(self, schema: Schema, texts: dict[str, str], seen: set[Reference]) -> None:
        """Add the texts of what a schema refers to, in an order in which each follows those that it uses."""
        for reference in schema.references:
            if reference in seen:
                continue
            if len(seen) == REFERENCES_MAX:
                raise InvalidSchema(f"the schema refers to more than {REFERENCES_MAX} others")
            seen.add(reference)
            used = self.version(reference.subject, reference.version, deleted=True)
            self._collect(used.schema, texts, seen)
            texts[reference.name] = used.schema.text

    def _with_imports(self, file: ProtoFile, settings: SerializerSettings) -> Schema:
        """Return the schema of a file, whose imports are registered under their names, as other clients do."""
        references: list[Reference] = []
        for imported in file.imports:
            schema = self._with_imports(imported, settings)
            found = self._found(imported.name, schema, settings)
            if found.version is None:
                found = self.lookup(imported.name, schema, normalize=settings.normalize)
            assert found.version is not None
            references.append(Reference(imported.name, imported.name, found.version))
        return Schema(file.text, "PROTOBUF", tuple(references))

    def _with_id(self, schema_id: int, subject: str | None) -> RegisteredSchema:
        return self._get(
            f"/schemas/ids/{schema_id}",
            lambda document: RegisteredSchema.from_json({**document, "id": schema_id}),
            subject=subject,
        )

    # ── requests ──

    def _get(self, path: str, parse: Callable[[Any], R], **params: str | bool | None) -> R:
        return self._call("GET", path, parse, **params)

    def _send(
        self, method: str, path: str, subject: str, schema: Schema, **params: str | bool | None
    ) -> RegisteredSchema:
        return self._call(
            method,
            path,
            lambda document: RegisteredSchema.from_json(document, subject=subject, schema=schema),
            body=schema.as_json(),
            **params,
        )

    def _call(
        self,
        method: str,
        path: str,
        parse: Callable[[Any], R],
        *,
        body: object = None,
        **params: str | bool | None,
    ) -> R:
        call = RegistryCall(method=method, path=path, parse=parse, params=params, body=body)
        deadline_s = time.monotonic() + self.config.timeout_s
        for _, pause_s in zip(range(ATTEMPTS_MAX - 1), backoff(), strict=False):
            try:
                return self._attempt(call, deadline_s)
            except BrokerUnavailableError:
                # The transport has tried for ``connect_timeout_s``.
                raise
            except SteleClientError as error:
                # A deletion that was executed would be refused when it is repeated.
                is_safe = method != "DELETE" or not error.is_outcome_unknown
                if not (error.retriable and is_safe) or time.monotonic() + pause_s >= deadline_s:
                    raise
            sleep(pause_s)
        return self._attempt(call, deadline_s)

    def _attempt(self, call: RegistryCall[R], deadline_s: float) -> R:
        return self._transport.call(call, timeout_s=max(deadline_s - time.monotonic(), 0.001))


def _subject(subject: str) -> str:
    return f"/subjects/{segment(subject)}"


def _version(subject: str, version: Version) -> str:
    return f"{_subject(subject)}/versions/{version}"


def _of(path: str, subject: str | None) -> str:
    return path if subject is None else f"{path}/{segment(subject)}"


def _texts(answer: Any) -> list[str]:
    return [str(one) for one in answer]


def _numbers(answer: Any) -> list[int]:
    return [int(one) for one in answer]


def _schemas(answer: Any) -> list[RegisteredSchema]:
    return [RegisteredSchema.from_json(one) for one in answer]


def _document(answer: Any) -> dict[str, Any]:
    return dict(answer)


def _mode(answer: Any) -> str:
    return str(answer["mode"])


def _compatibility(answer: Any) -> Compatibility:
    return Compatibility(bool(answer["is_compatible"]), tuple(answer.get("messages") or ()))
