"""Match routes so that an encoded slash is part of a name.

The server decodes the path before routing, so ``/v1/groups/a%2Fmembers%2Fb`` would
match the route of a member of group ``a``. Ids of groups and members may contain
slashes, and a request for one object must never reach another.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from starlette.routing import Match
from starlette.types import Scope

from .guarded_route import GuardedRoute

_SLASH = re.compile("%2f", re.IGNORECASE)
# Decoded only after the match: an encoded slash, and an encoded percent sign.
_LATER = re.compile("%(?=2[f5])", re.IGNORECASE)


class EncodedSlashRoute(GuardedRoute):
    """Route whose path parameters are whole segments of the path as sent."""

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
