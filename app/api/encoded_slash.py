"""Routes on which an encoded slash is part of a name, not the end of it.

A server decodes the path before it is matched, and then ``/v1/groups/a%2Fmembers%2Fb``
looks like the address of a member of ``a``. Ids of groups and of members may
have slashes, and what is meant for a name that cannot be must not reach another.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

_SLASH = re.compile("%2f", re.IGNORECASE)
# What is decoded only after the match: a slash, and the sign that says that something is encoded.
_LATER = re.compile("%(?=2[f5])", re.IGNORECASE)


class EncodedSlashRoute(APIRoute):
    """Its path parameters are whole segments of the path as it was sent."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        sent = scope.get("raw_path", b"").decode("latin-1")
        if not _SLASH.search(sent):
            return super().matches(scope)
        path = unquote(_LATER.sub("%25", sent))
        match, child_scope = super().matches({**scope, "path": path})
        if match is not Match.NONE:
            parameters: dict[str, Any] = child_scope["path_params"]
            child_scope["path_params"] = {name: unquote(value) for name, value in parameters.items()}
        return match, child_scope
