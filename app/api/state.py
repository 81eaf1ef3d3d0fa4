"""What every route knows: the broker, its groups and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from ..broker.broker import Broker
from ..groups.services import Groups
from ..settings import Settings


@dataclass(frozen=True, slots=True)
class ApiState:
    broker: Broker
    groups: Groups
    settings: Settings


def api_state(request: Request) -> ApiState:
    return cast("ApiState", request.app.state.stele)


def broker_of(request: Request) -> Broker:
    return api_state(request).broker


def groups_of(request: Request) -> Groups:
    return api_state(request).groups
