"""Serve schemas by their id or GUID, and all of them."""

from __future__ import annotations

from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response

from ....registry.definitions import TYPES, RegisteredSchema
from ....security.acl import DESCRIBE_SUBJECT, READ_SUBJECT
from ...parameters import Text
from ...rights import access_of
from ...schemas import one_of
from ..answers import (
    ContextIdJson,
    SchemaJson,
    SchemaOfId,
    SubjectVersionJson,
    schema_json,
    schema_of_id,
    takes_more,
)
from ..rights import require_one, seen
from ..routing import (
    DELETED,
    FORMAT,
    GUID,
    IN_CONTEXT_OF,
    LIMIT,
    OFFSET,
    PAGE,
    PREFIX,
    REFERENCE_FORMAT,
    SCHEMA_ID,
    RegistryFlag,
    in_context_of,
    page_of,
    registry_of,
    routes,
)

route = routes("schemas")

# Of a list of schemas, which have their texts with them.
_SCHEMAS_MAX = 1000
_ALIASES = RegistryFlag("aliases", "include the versions of subjects whose alias begins with subjectPrefix")
_LATEST_ONLY = RegistryFlag("latestOnly", "only the latest version of each subject")
_RULE_TYPE = Text("ruleType", "only schemas with a rule of this type")
_MAX_ID = RegistryFlag("fetchMaxId", "also return the highest id")


@route("GET /schemas/types", "List the types of schemas")
async def list_schema_types(request: Request) -> list[Annotated[str, one_of("SchemaType", *TYPES)]]:
    """List the types of schemas that can be registered."""
    return list(registry_of(request).types)


@route("GET /schemas", "List schemas", PREFIX, _ALIASES, DELETED, _LATEST_ONLY, _RULE_TYPE, *PAGE)
async def list_schemas(request: Request) -> list[SchemaJson]:
    """List versions of subjects with their schemas, at most 1000 of those that the client may read."""
    offset, limit = OFFSET.read(request), LIMIT.read(request)
    limit = _SCHEMAS_MAX if limit < 0 else min(limit, _SCHEMAS_MAX)
    # Without rights to check, the page is one of the registry.
    begin = offset if access_of(request) is None else 0
    wanted = offset + limit - begin
    found, count = list[RegisteredSchema](), _SCHEMAS_MAX
    while count == _SCHEMAS_MAX and len(found) < wanted:
        page = await registry_of(request).schemas(
            prefix=PREFIX.read(request, ":*:"),
            aliases=_ALIASES.read(request),
            deleted=DELETED.read(request),
            latest_only=_LATEST_ONLY.read(request),
            rule_type=_RULE_TYPE.given(request),
            offset=begin,
            limit=_SCHEMAS_MAX,
        )
        found += await seen(request, READ_SUBJECT, page, lambda schema: schema.subject)
        count, begin = len(page), begin + len(page)
    more = takes_more(request)
    return [schema_json(schema, more=more) for schema in found[wanted - limit : wanted]]


@route("GET /schemas/ids/{schema_id}", "Get a schema", IN_CONTEXT_OF, FORMAT, REFERENCE_FORMAT, _MAX_ID)
async def get_schema(request: Request) -> SchemaOfId:
    """Return the schema with an id, also one that is soft-deleted: this is how messages are read."""
    found = await _schema(request)
    max_id = await registry_of(request).max_id(in_context_of(request)) if _MAX_ID.read(request) else None
    return schema_of_id(found, max_id, more=takes_more(request))


@route("GET /schemas/ids/{schema_id}/schema", "Get the text of a schema", IN_CONTEXT_OF, FORMAT)
async def get_schema_text(request: Request) -> Response:
    """Return the schema with an id as it is, not within JSON."""
    return Response((await _schema(request)).text)


async def _schema(request: Request) -> RegisteredSchema:
    """Return the schema that the path names, if the client may read one of its subjects."""
    registry, schema_id, subject = registry_of(request), SCHEMA_ID.number(request), in_context_of(request)
    found = await registry.schema_by_id(
        schema_id,
        subject=subject,
        text_format=FORMAT.read(request),
        reference_format=REFERENCE_FORMAT.read(request),
    )
    await _require_read(request, found)
    return found


async def _require_read(request: Request, found: RegisteredSchema) -> None:
    if access_of(request) is not None:
        versions = await registry_of(request).versions_of_id(found.id, subject=found.subject, deleted=True)
        require_one(request, versions, f"the schema with the id {found.id}")


@route(
    "GET /schemas/ids/{schema_id}/subjects", "List the subjects of a schema", IN_CONTEXT_OF, DELETED, *PAGE
)
async def list_subjects_of_schema(request: Request) -> list[str]:
    """List the subjects that have a schema, of those that the client may see."""
    subjects = await registry_of(request).subjects_of_id(
        SCHEMA_ID.number(request), subject=in_context_of(request), deleted=DELETED.read(request)
    )
    return page_of(request, await seen(request, DESCRIBE_SUBJECT, subjects, str))


@route(
    "GET /schemas/ids/{schema_id}/versions", "List the versions of a schema", IN_CONTEXT_OF, DELETED, *PAGE
)
async def list_versions_of_schema(request: Request) -> list[SubjectVersionJson]:
    """List the versions that have a schema, of subjects that the client may see."""
    versions = await registry_of(request).versions_of_id(
        SCHEMA_ID.number(request), subject=in_context_of(request), deleted=DELETED.read(request)
    )
    shown = await seen(request, DESCRIBE_SUBJECT, versions, lambda version: version.subject)
    return [{"subject": found.subject, "version": found.version} for found in page_of(request, shown)]


@route("GET /schemas/guids/{guid}", "Get a schema by its GUID", FORMAT)
async def get_schema_by_guid(request: Request) -> SchemaOfId:
    """Return the schema with a GUID, which is the same in every registry."""
    found = await registry_of(request).schema_by_guid(GUID.read(request), text_format=FORMAT.read(request))
    await _require_read(request, found)
    return schema_of_id(found, None, more=takes_more(request))


@route("GET /schemas/guids/{guid}/ids", "List the ids of a schema")
async def list_ids_of_guid(request: Request) -> list[ContextIdJson]:
    """List the ids of the schema with a GUID, one per context."""
    registry, guid = registry_of(request), GUID.read(request)
    await _require_read(request, await registry.schema_by_guid(guid))
    return [{"context": found.context, "id": found.id} for found in await registry.ids_of_guid(guid)]
