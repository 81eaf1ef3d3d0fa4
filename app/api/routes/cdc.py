"""What the broker's own connectors to databases do."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..openapi import cdc as openapi
from ..record_json import encode
from ..state import api_state

router = APIRouter(tags=["broker"])


@router.get("/v1/cdc", openapi_extra=openapi.CDC, summary="How change data capture is doing")
async def cdc(request: Request) -> Response:
    """The connectors that this broker runs, with slot, position, lag, tables and the last error; none if none is set up."""
    return Response(encode({"connectors": api_state(request).connectors()}), media_type="application/json")
