"""When a request that no route matches is decoded for one.

For ``direct_produce`` and ``fetching.request_memo``.
"""

from __future__ import annotations

# After requests that gave no route, so many are not decoded for one, because most clients keep to one layout.
SKIPPED_MAX = 256


class RouteLearning:
    """Most clients keep to one layout.

    So a connection whose requests give no routes learns ever more rarely.
    """

    __slots__ = ("_skipped", "_to_skip")

    def __init__(self) -> None:
        # How many requests without a route are not decoded for one, and how many of them have come.
        self._to_skip = self._skipped = 0

    def is_due(self) -> bool:
        """Return whether this request is to be decoded; ``note`` whether it gave a route."""
        if self._skipped < self._to_skip:
            self._skipped += 1
            return False
        return True

    def note(self, *, has_route: bool) -> None:
        self._skipped = 0
        self._to_skip = 0 if has_route else min(2 * self._to_skip + 1, SKIPPED_MAX)
