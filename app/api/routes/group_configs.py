"""Serve the configurations of groups over HTTP: show, set, reset."""

from __future__ import annotations

from typing import TypedDict

from msgspec import Struct
from starlette.requests import Request

from ...broker.config_values import ConfigChange, ConfigSource, Operation
from ...broker.dynamic_configs import ConfigKind
from ...groups.base.checks import check_group_id
from ..json_bodies import JsonBody
from ..parameters import GROUP
from ..requests import ConfigChanges, Configs, config_texts
from ..routing import Routes
from ..state import broker_of

route = Routes("groups")


class GroupConfigs(TypedDict):
    group: str
    configs: Configs
    effective_configs: Configs


class GroupConfigsBody(Struct, forbid_unknown_fields=True):
    """Configurations of a group to set; null resets one to its default."""

    configs: ConfigChanges


_CHANGE = JsonBody(
    GroupConfigsBody,
    '{"configs": {"share.record.lock.duration.ms": 60000, "share.delivery.count.limit": null}}',
)


def _described(request: Request, group: str) -> GroupConfigs:
    values = broker_of(request).configs.describe_entity(ConfigKind.GROUP, group)
    # Only sensitive values are not shown, and groups have none.
    effective = {value.name: value.value for value in values if value.value is not None}
    own = {value.name for value in values if value.source is ConfigSource.GROUP}
    configs = {name: text for name, text in effective.items() if name in own}
    return {"group": group, "configs": configs, "effective_configs": effective}


@route("GET /v1/groups/{group}/configs", "Get the configurations of a group", errors=(400,))
async def get_group_configs(request: Request) -> GroupConfigs:
    """Return the configurations that are set on a group, and all that are in effect.

    The group need not exist yet.
    """
    group = GROUP.read(request)
    check_group_id(group)
    return _described(request, group)


@route("PATCH /v1/groups/{group}/configs", "Configure a group", body=_CHANGE, errors=(503,))
async def alter_group_configs(request: Request) -> GroupConfigs:
    """Set configurations of a group; null resets one to its default.

    They take effect at once.

    A group may be configured before it exists, and its configurations survive its deletion.
    """
    group = GROUP.read(request)
    check_group_id(group)
    body = await _CHANGE.read(request)
    await broker_of(request).configs.change(
        ConfigKind.GROUP,
        group,
        [
            ConfigChange(name, Operation.DELETE if text is None else Operation.SET, text)
            for name, text in config_texts(body.configs).items()
        ],
    )
    return _described(request, group)
