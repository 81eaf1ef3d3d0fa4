"""The table of APIs, which drives ApiVersions and dispatch: the rows of all handler modules."""

from __future__ import annotations

import re
from dataclasses import replace

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.api_versions import (
    API_VERSIONS_API,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

from .context import Context
from .features import FEATURES_EPOCH, FINALIZED, supported
from .guards.rights import open_to_all
from .handlers import (
    acls,
    cluster,
    configs,
    fetch,
    leader_epoch,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producers,
    quotas,
    security,
    topics,
    transaction_admin,
    transactions,
    users,
)
from .handlers.groups import (
    committed_offsets,
    consumer_groups,
    groups,
    membership,
    not_served,
    share_fetch,
    share_groups,
)
from .served import Served
from .topics_named import looking_for_topics, names_topics

# KIP-511: valid names and versions of client software.
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FIRST_WITH_CLIENT_SOFTWARE = 3


def _answer_api_versions(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    named = (request.client_software_name, request.client_software_version)
    if context.version >= _FIRST_WITH_CLIENT_SOFTWARE and not all(map(_CLIENT_SOFTWARE.fullmatch, named)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_ADVERTISED,
        supported_features=supported(context.version),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=FINALIZED,
    )


def unsupported_api_versions() -> ApiVersionsResponse:
    """Return the response to a version of ApiVersions that is not served.

    It is encoded as v0.
    """
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[row for row in _ADVERTISED if row.api_key == API_VERSIONS_KEY],
    )


_ROWS = (
    Served(API_VERSIONS_API, _answer_api_versions, open_to_all()),
    *produce.ROWS,
    *fetch.ROWS,
    *list_offsets.ROWS,
    *leader_epoch.ROWS,
    *metadata.ROWS,
    *topics.ROWS,
    *configs.ROWS,
    *log_dirs.ROWS,
    *membership.ROWS,
    *groups.ROWS,
    *committed_offsets.ROWS,
    *consumer_groups.ROWS,
    *share_groups.ROWS,
    *share_fetch.ROWS,
    *not_served.ROWS,
    *producers.ROWS,
    *transactions.ROWS,
    *transaction_admin.ROWS,
    *cluster.ROWS,
    *security.ROWS,
    *users.ROWS,
    *acls.ROWS,
    *quotas.ROWS,
)


def _with_look(row: Served) -> Served:
    if row.finds_topics_itself or not names_topics(row.api.request):
        return row
    return replace(row, handle=looking_for_topics(row.handle))


SERVED = {row.api.key: _with_look(row) for row in _ROWS}
# What is served where access rules decide.
GUARDED = {key: row.guarded() for key, row in SERVED.items()}
API_VERSIONS_KEY = API_VERSIONS_API.key
_ADVERTISED = [
    ApiVersion(api_key=row.api.key, min_version=row.api.versions[0], max_version=row.api.versions[1])
    for row in sorted(_ROWS, key=lambda row: row.api.key)
]
