"""Serve subjects and their versions: list, look up, register, read, delete."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ....errors import InvalidRequest
from ....registry.definitions import RegisteredSchema
from ....security.acl import DESCRIBE_SUBJECT
from ...parameters import Texts
from ..answers import RegisteredJson, SchemaJson, registered_json, schema_json, takes_more
from ..bodies import SCHEMA
from ..rights import require_references, seen
from ..routing import (
    DELETED,
    DELETED_ONLY,
    FORMAT,
    NORMALIZE,
    PAGE,
    PERMANENT,
    PREFIX,
    REFERENCE_FORMAT,
    SUBJECT,
    VERSION,
    RegistryFlag,
    log,
    page_of,
    registry_of,
    routes,
)

route = routes("subjects")

_KEYS, _VALUES = Texts("key", "name of a property of the metadata"), Texts("value", "its value")
_NEGATIVE = RegistryFlag(
    "deletedAsNegative", "show the number of a version that is soft-deleted as a negative one"
)
_FORCE = RegistryFlag("force", "do not check compatibility")


@route("GET /subjects", "List subjects", PREFIX, DELETED, DELETED_ONLY, *PAGE)
async def list_subjects(request: Request) -> list[str]:
    """List the subjects that the client may see, by name."""
    subjects = await registry_of(request).subjects(
        prefix=PREFIX.read(request, ":*:"),
        deleted=DELETED.read(request),
        deleted_only=DELETED_ONLY.read(request),
    )
    return page_of(request, await seen(request, DESCRIBE_SUBJECT, subjects, str))


@route("POST /subjects/{subject}", "Look up a schema", NORMALIZE, FORMAT, DELETED, body=SCHEMA)
async def look_up_schema(request: Request) -> SchemaJson:
    """Return the version of a subject that has this schema."""
    body = await SCHEMA.read(request)
    found = await registry_of(request).look_up(
        SUBJECT.read(request),
        body.given(),
        normalize=NORMALIZE.read(request),
        deleted=DELETED.read(request),
        text_format=FORMAT.read(request),
    )
    return schema_json(found, more=takes_more(request))


@route("DELETE /subjects/{subject}", "Delete a subject", PERMANENT)
async def delete_subject(request: Request) -> list[int]:
    """Delete all versions of a subject, and return their numbers.

    They are soft-deleted: messages of these schemas can still be read. `permanent=true` deletes for good what was
    soft-deleted before.
    """
    subject = SUBJECT.read(request)
    deleted = await registry_of(request).delete_subject(subject, permanent=PERMANENT.read(request))
    log(request, "delete-subject", subject)
    return deleted


@route("GET /subjects/{subject}/versions", "List versions", DELETED, DELETED_ONLY, _NEGATIVE, *PAGE)
async def list_versions(request: Request) -> list[int]:
    """List the numbers of the versions of a subject."""
    versions = await registry_of(request).versions(
        SUBJECT.read(request),
        deleted=DELETED.read(request),
        deleted_only=DELETED_ONLY.read(request),
        deleted_as_negative=_NEGATIVE.read(request),
    )
    return page_of(request, versions)


@route("POST /subjects/{subject}/versions", "Register a schema", NORMALIZE, FORMAT, _FORCE, body=SCHEMA)
async def register_schema(request: Request) -> RegisteredJson:
    """Register a schema under a subject, and return its id.

    The answer comes when the schema is synced. A schema that the subject has already gets no new version.
    """
    subject, body = SUBJECT.read(request), await SCHEMA.read(request)
    require_references(request, subject, body)
    registered = await registry_of(request).register(
        subject,
        body.given(),
        normalize=NORMALIZE.read(request),
        force=_FORCE.read(request),
    )
    return registered_json(registered, more=takes_more(request))


@route("GET /subjects/{subject}/versions/{version}", "Get a version", DELETED, FORMAT, REFERENCE_FORMAT)
async def get_version(request: Request) -> SchemaJson:
    """Return a version of a subject."""
    return schema_json(await _version(request), more=takes_more(request))


@route("GET /subjects/{subject}/versions/{version}/schema", "Get the schema of a version", DELETED, FORMAT)
async def get_schema_of_version(request: Request) -> Response:
    """Return the schema of a version as it is, not within JSON."""
    return Response((await _version(request)).text)


async def _version(request: Request) -> RegisteredSchema:
    return await registry_of(request).version(
        SUBJECT.read(request),
        VERSION.read(request),
        deleted=DELETED.read(request),
        text_format=FORMAT.read(request),
        reference_format=REFERENCE_FORMAT.read(request),
    )


@route(
    "GET /subjects/{subject}/versions/{version}/referencedby", "List what refers to a version", DELETED, *PAGE
)
async def list_referring_ids(request: Request) -> list[int]:
    """List the ids of the schemas that refer to a version."""
    ids = await registry_of(request).referenced_by(
        SUBJECT.read(request), VERSION.read(request), deleted=DELETED.read(request)
    )
    return page_of(request, ids)


@route("DELETE /subjects/{subject}/versions/{version}", "Delete a version", PERMANENT)
async def delete_version(request: Request) -> int:
    """Delete a version, and return its number; `permanent` as for a subject."""
    subject, version = SUBJECT.read(request), VERSION.read(request)
    deleted = await registry_of(request).delete_version(subject, version, permanent=PERMANENT.read(request))
    log(request, f"delete-version-{deleted}", subject)
    return deleted


@route("GET /subjects/{subject}/metadata", "Find a version by its metadata", _KEYS, _VALUES, DELETED, FORMAT)
async def find_version(request: Request) -> SchemaJson:
    """Return the newest version whose metadata has all these properties: as many `value` as `key`."""
    keys, values = _KEYS.read(request), _VALUES.read(request)
    if len(keys) != len(values):
        raise InvalidRequest(f"there are {len(keys)} key and {len(values)} value; give one value per key")
    found = await registry_of(request).latest_with_metadata(
        SUBJECT.read(request),
        dict(zip(keys, values, strict=True)),
        deleted=DELETED.read(request),
        text_format=FORMAT.read(request),
    )
    return schema_json(found, more=takes_more(request))
