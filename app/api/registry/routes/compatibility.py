"""Serve the check whether a schema is compatible with those of a subject."""

from __future__ import annotations

from starlette.requests import Request

from ..answers import CompatibilityJson
from ..bodies import SCHEMA
from ..rights import require_references
from ..routing import NORMALIZE, SUBJECT, VERSION, RegistryFlag, registry_of, routes

route = routes("compatibility")

_VERBOSE = RegistryFlag("verbose", "also return the reasons")


@route("POST /compatibility/subjects/{subject}/versions", "Check a schema", NORMALIZE, _VERBOSE, body=SCHEMA)
async def check_schema(request: Request) -> CompatibilityJson:
    """Check whether a schema could be registered, against the versions that its compatibility level names."""
    return await _check(request, None)


@route(
    "POST /compatibility/subjects/{subject}/versions/{version}",
    "Check a schema against a version",
    NORMALIZE,
    _VERBOSE,
    body=SCHEMA,
)
async def check_schema_against_version(request: Request) -> CompatibilityJson:
    """Check whether a schema is compatible with one version, in the way that the compatibility level says."""
    return await _check(request, VERSION.read(request))


async def _check(request: Request, version: str | None) -> CompatibilityJson:
    subject, body = SUBJECT.read(request), await SCHEMA.read(request)
    require_references(request, subject, body)
    found = await registry_of(request).check_compatibility(
        subject,
        body.given(),
        version=version,
        normalize=NORMALIZE.read(request),
        verbose=_VERBOSE.read(request),
    )
    answer: CompatibilityJson = {"is_compatible": found.is_compatible}
    if found.messages:
        answer["messages"] = list(found.messages)
    return answer
