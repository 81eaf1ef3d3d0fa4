"""What every route knows: the broker and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from starlette.requests import Request

from ..broker.broker import Broker
from ..settings import Settings


@dataclass(frozen=True, slots=True)
class ApiState:
    broker: Broker
    settings: Settings


def api_state(request: Request) -> ApiState:
    return cast("ApiState", request.app.state.stele)


def broker_of(request: Request) -> Broker:
    return api_state(request).broker
