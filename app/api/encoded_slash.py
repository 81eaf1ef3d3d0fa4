"""Match routes so that an encoded slash is part of a name.

The server decodes the path before routing, so ``/v1/groups/a%2Fmembers%2Fb`` would
match the route of a member of group ``a``. Ids of groups and members may contain
slashes, and a request for one object must never reach another.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from starlette.routing import Match
from starlette.types import Scope

from .errors import HttpError
from .guarded_route import GuardedRoute

_SLASH = re.compile("%2f", re.IGNORECASE)
# Decoded only after the match: an encoded slash, and an encoded percent sign.
_LATER = re.compile("%(?=2[f5])", re.IGNORECASE)
# What bytes that are no text are decoded to, all of them alike.
_UNREADABLE = "\ufffd"


def _refuse_bytes(sent: str) -> None:
    """Raise ``HttpError`` unless the path as sent is UTF-8, or two names were one."""
    try:
        unquote_to_bytes(sent).decode()
    except UnicodeDecodeError:
        raise HttpError(400, f"the path {sent[:200]!r} is not UTF-8 when it is decoded") from None


class EncodedSlashRoute(GuardedRoute):
    """Route whose path parameters are whole segments of the path as sent."""

    @property
    def _takes_bytes(self) -> bool:
        """Whether the route reads the end of its path as bytes, not as text."""
        return self.path.endswith(":path}")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        sent = scope.get("raw_path", b"").decode("latin-1")
        has_slash = _SLASH.search(sent) is not None
        path = unquote(_LATER.sub("%25", sent)) if has_slash else scope["path"]
        match, child_scope = super().matches({**scope, "path": path})
        # Only the route that serves the path knows whether it takes bytes.
        if match is not Match.NONE and _UNREADABLE in path and not self._takes_bytes:
            _refuse_bytes(sent)
        if match is not Match.NONE and has_slash:
            parameters: dict[str, Any] = child_scope["path_params"]
            child_scope["path_params"] = {name: unquote(value) for name, value in parameters.items()}
        return match, child_scope
