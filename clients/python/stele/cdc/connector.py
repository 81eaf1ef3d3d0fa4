"""Changes of PostgreSQL → topics: runs that end at the first failure, and begin again from what is stored.

A run: take the lock, check what is set up, find or make the slot, begin a version of
the producer, copy the tables that no run has copied, follow the slot. Nothing is kept
in memory that a run could not find again, so a crash anywhere is the same as a restart
(ADR-0016).
"""

from __future__ import annotations

import logging
import os
import threading

from ..client import Client
from ..errors import ProducerStateError, SteleClientError
from ..transport.base import retry_pause_s
from .connection import break_connections
from .copies import full_names
from .errors import Interrupted, Stopped
from .options import CdcOptions
from .postgres import Postgres
from .run import Run
from .status import Status

logger = logging.getLogger("stele.cdc")

_PAUSE_MAX_S = 30.0
# How long a call may hold up the end.
_GRACE_S = 5.0


class Connector:
    """``run`` works until ``stop`` is called from another thread or a signal's handler."""

    def __init__(self, options: CdcOptions, status: Status) -> None:
        self._options = options
        self._status = status
        self._stopping = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._client: Client | None = None
        # --snapshot again is meant once, not for every run after a failure.
        self._again = full_names(options) if options.snapshot == "again" else set[str]()

    def stop(self) -> None:
        """End ``run`` soon: what was read is stored and confirmed, if PostgreSQL and the broker answer in time."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.write(self._wake_write, b"x")
        # It may wait for a lock, for open transactions, or for a peer that hangs: none of them hears the word.
        breaking = threading.Timer(_GRACE_S, self._break)
        breaking.daemon = True
        breaking.start()

    def _break(self) -> None:
        break_connections()
        client = self._client
        if client is not None:
            client.close()

    def close(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)

    def run(self) -> None:
        """Returns when stopped. Raises CdcError, SteleClientError, OSError for what waiting does not mend."""
        failures = 0
        while not self._stopping.is_set():
            stored_before = self._status.events
            try:
                self._run_once()
            except Stopped:
                break
            except (Interrupted, ProducerStateError) as error:
                cause: Exception = error
            except SteleClientError as error:
                if self._stopping.is_set():
                    break
                if not error.retriable:
                    raise
                cause = error
            else:
                continue
            failures = 0 if self._status.events > stored_before else failures + 1
            pause_s = min(_PAUSE_MAX_S, retry_pause_s(failures) * 4)
            if self._stopping.is_set():
                break
            self._status.failed(cause)
            logger.warning("%s; going on in %.1f s", cause, pause_s)
            self._stopping.wait(pause_s)
        self._status.state = "stopped"

    def _run_once(self) -> None:
        self._status.state = "connecting"
        postgres = Postgres(self._options)
        try:
            postgres.take_lock()
            with Client(self._options.broker) as client:
                self._client = client
                Run(
                    self._options,
                    self._status,
                    postgres,
                    client,
                    self._stopping,
                    self._wake_read,
                    self._again,
                ).go()
        finally:
            self._client = None
            postgres.close()
