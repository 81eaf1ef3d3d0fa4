"""Report the state of the CDC connectors that the broker runs."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..guarded_route import GuardedRoute
from ..openapi import cdc as openapi
from ..records.record_json import encode
from ..state import api_state

router = APIRouter(tags=["broker"], route_class=GuardedRoute)


@router.get("/v1/cdc", openapi_extra=openapi.GET_CDC, summary="Get the state of change data capture")
async def get_cdc(request: Request) -> Response:
    """Return each connector of this broker: slot, state, position, lag, tables and the last error.

    The list is empty unless a connector is configured.
    """
    return Response(encode({"connectors": api_state(request).connectors()}), media_type="application/json")
