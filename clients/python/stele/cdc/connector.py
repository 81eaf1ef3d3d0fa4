"""The connector, which runs attempts until it is stopped.

A run takes the lock, checks the setup, finds or creates the slot, begins a version of
its producer, copies the tables that no run has copied, and follows the slot. It ends at
the first failure, and the next run continues from what is stored. No state is kept in
memory only, so a crash is the same as a restart (ADR-0016).
"""

from __future__ import annotations

import logging
import os
import threading

from ..client import Client
from ..errors import ProducerStateError, SteleClientError
from ..transport.base import retry_pause_s
from .errors import (
    CdcError,
    Interrupted,
    Stopped,
    StreamedMessageError,
    TablesRequestedError,
    TransactionTimedOut,
)
from .options import CdcOptions
from .postgres.catalog import Postgres
from .postgres.connection import break_connections
from .postgres.slot_guard import SlotGuard
from .registered import table_forms
from .run import Run
from .status import Status

logger: logging.Logger = logging.getLogger("stele.cdc")

# Attempts per transaction: the first may have waited for a slow broker.
_TIMEOUTS_MAX = 3
# Longest time that a pending call may delay a stop.
_GRACE_S = 5.0


class _Timeouts:
    """Counts consecutive transaction timeouts with nothing confirmed in between."""

    def __init__(self) -> None:
        self._count = 0
        self._confirmed_lsn = -1

    def count(self, error: TransactionTimedOut, confirmed_lsn: int) -> None:
        """Raises CdcError at the last attempt."""
        self._count = self._count + 1 if confirmed_lsn == self._confirmed_lsn else 1
        self._confirmed_lsn = confirmed_lsn
        if self._count >= _TIMEOUTS_MAX:
            raise CdcError(f"{error}; it was tried {self._count} times") from error


class Connector:
    """Runs until ``stop`` is called, from another thread or a signal handler."""

    def __init__(self, options: CdcOptions, status: Status) -> None:
        self._options = options
        self._status = status
        self._stopping = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._client: Client | None = None
        self._is_streaming = True
        self._guard = SlotGuard(options, status)
        # --snapshot again applies once, not to every retry.
        self._again = options.full_names if options.snapshot == "again" else set[str]()

    def stop(self) -> None:
        """Stop ``run``, which first stores and confirms what it has read.

        After ``_GRACE_S`` the connections are closed under calls that still wait.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        os.write(self._wake_write, b"x")
        # The run may be waiting for a lock, for open transactions, or for a peer that hangs.
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
        """Run and retry until stopped.

        Raises:
            CdcError, SteleClientError, OSError: a failure that a retry cannot fix.
        """
        failures = 0
        timeouts = _Timeouts()
        while not self._stopping.is_set():
            stored_before = self._status.events
            try:
                self._run_once()
            except Stopped:
                break
            except TablesRequestedError as error:
                logger.info("%s", error)
                continue
            except (Interrupted, ProducerStateError) as error:
                if isinstance(error, TransactionTimedOut):
                    timeouts.count(error, self._status.confirmed_lsn)
                cause: Exception = error
            except SteleClientError as error:
                if self._stopping.is_set():
                    break
                if not error.retriable:
                    raise
                cause = error
            else:
                continue
            self._is_streaming = not isinstance(cause, StreamedMessageError)
            failures = 0 if self._status.events > stored_before else failures + 1
            pause_s = retry_pause_s(failures) * 4
            if self._stopping.is_set():
                break
            self._status.failed(cause)
            logger.warning("%s; retrying in %.1f s", cause, pause_s)
            self._stopping.wait(pause_s)
        self._status.state = "stopped"

    def _check_lag(self, postgres: Postgres) -> None:
        """Raise CdcError after the slot was dropped, because it holds back too much."""
        slot = postgres.slot() if self._options.max_slot_lag and self._options.has_slot else None
        if slot is not None and self._guard.check(slot.lag_bytes):
            raise self._guard.drop(postgres, slot.lag_bytes)

    def _run_once(self) -> None:
        self._status.state = "connecting"
        postgres = Postgres(self._options)
        try:
            postgres.take_lock()
            self._check_lag(postgres)
            with Client(self._options.broker) as client, table_forms(self._options, postgres) as forms:
                self._client = client
                Run(
                    self._options,
                    self._status,
                    postgres,
                    client,
                    forms,
                    self._stopping,
                    self._wake_read,
                    self._again,
                    guard=self._guard,
                    is_streaming=self._is_streaming,
                ).go()
        finally:
            self._client = None
            postgres.close()
