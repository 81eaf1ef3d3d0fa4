"""Fetches for a blocking consumer in its own thread, the counterpart of ``async_fetching``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..client import Client
from ..operations.fetch import Fetch, FetchOutcome
from .core import ConsumerCore

# Over HTTP a fetch waits for a single partition; this bounds the delay of the others.
SHARED_WAIT_MS = 100


class Fetching:
    """The fetches of a consumer, one at a time; none is under way between two calls."""

    def __init__(
        self,
        client: Client,
        core: ConsumerCore[Any],
        accept: Callable[[Fetch, Sequence[FetchOutcome]], None],
    ) -> None:
        self._client = client
        self._core = core
        self._accept = accept
        self._next_group = 0

    def fetch(self, deadline_s: float | None) -> None:
        """Fetch once, waiting at most until the deadline, and accept what has been fetched.

        Raises:
            SteleClientError: a fetch failed; calling it again fetches the same again.
        """
        options, groups = self._core.options, self._core.groups()
        if not groups:
            return
        wait_ms = options.wait_ms if options.follow else 0
        # Fetch from all without waiting; if none has records, wait for one of them, in turn.
        if len(groups) > 1:
            for group in groups:
                self._fetch(group, 0)
            if self._core.has_records or not options.follow:
                return
            wait_ms = min(wait_ms, SHARED_WAIT_MS)
        if deadline_s is not None:
            wait_ms = min(wait_ms, max(int((deadline_s - time.monotonic()) * 1000), 0))
        self._next_group = (self._next_group + 1) % len(groups)
        self._fetch(groups[self._next_group], wait_ms)

    def _fetch(self, group: tuple[int, ...], wait_ms: int) -> None:
        fetch = self._core.fetch(group, wait_ms=wait_ms)
        self._accept(fetch, self._client.call(fetch))

    def drop(self, partition: int) -> None:
        """Do nothing: no fetch of the partition is under way."""

    def stop(self) -> None:
        """Do nothing: no fetch is under way."""
