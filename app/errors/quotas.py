"""The error of a client that has used more than its quota."""

from __future__ import annotations

from .base import SteleError


class QuotaExceeded(SteleError):
    """``quota`` is its name; ``retry_after_ms`` is how long the client has to wait."""

    def __init__(self, quota: str, *, retry_after_ms: int) -> None:
        super().__init__(
            f"the client has used more than its {quota} allows; repeat the request in {retry_after_ms} ms"
        )
        self.quota = quota
        self.retry_after_ms = retry_after_ms
