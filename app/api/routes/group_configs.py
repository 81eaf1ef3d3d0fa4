"""Serve the configurations of groups over HTTP: show, set, reset."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...broker.config_values import ConfigChange, ConfigSource, Operation
from ...broker.dynamic_configs import ConfigKind
from ...groups.base.checks import check_group_id
from ..bodies import GroupConfigsBody
from ..encoded_slash import EncodedSlashRoute
from ..json_bodies import json_answer, json_body
from ..openapi import group_configs as openapi
from ..requests import config_texts
from ..state import broker_of

router = APIRouter(tags=["groups"], route_class=EncodedSlashRoute)

_EXAMPLE = '{"configs": {"share.record.lock.duration.ms": 60000}}'


def _described(request: Request, group: str) -> Response:
    values = broker_of(request).configs.describe_entity(ConfigKind.GROUP, group)
    return json_answer(
        {
            "group": group,
            "configs": {value.name: value.value for value in values if value.source is ConfigSource.GROUP},
            "effective_configs": {value.name: value.value for value in values},
        }
    )


@router.get(
    "/v1/groups/{group}/configs",
    openapi_extra=openapi.GET_CONFIGS,
    summary="Get the configurations of a group",
)
async def get_group_configs(request: Request) -> Response:
    """Return the configurations that are set on a group, and all that are in effect.

    The group need not exist yet.
    """
    group = str(request.path_params["group"])
    check_group_id(group)
    return _described(request, group)


@router.patch("/v1/groups/{group}/configs", openapi_extra=openapi.PATCH_CONFIGS, summary="Configure a group")
async def alter_group_configs(request: Request) -> Response:
    """Set configurations of a group; null resets one to its default.

    They take effect at once.

    A group may be configured before it exists, and its configurations survive its deletion.
    """
    group = str(request.path_params["group"])
    check_group_id(group)
    body = await json_body(request, GroupConfigsBody, _EXAMPLE)
    await broker_of(request).configs.change(
        ConfigKind.GROUP,
        group,
        [
            ConfigChange(name, Operation.DELETE if text is None else Operation.SET, text)
            for name, text in config_texts(body.configs).items()
        ],
    )
    return _described(request, group)
