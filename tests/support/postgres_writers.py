"""Threads that write to PostgreSQL until they are told to end."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, ClassVar

import psycopg2

_PAUSE_S = 0.05


class Writer(threading.Thread):
    """Makes transactions from one connection, and from another one after the server was killed.

    Without ``is_killed``, no failure is expected.
    """

    is_killed: ClassVar[bool] = True

    def __init__(self, connect: Callable[[], Any]) -> None:
        super().__init__()
        self._connect = connect
        self._ended = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        expected = (psycopg2.Error,) if self.is_killed else ()
        try:
            while not self._ended.is_set():
                # What was under way is committed or it is not; the tables know.
                with suppress(*expected), closing(self._connect()) as connection:
                    while not self._ended.is_set():
                        with connection, connection.cursor() as cursor:
                            self.transact(cursor)
                self._ended.wait(_PAUSE_S)
        except BaseException as error:
            self.failure = error
            raise

    def transact(self, cursor: Any) -> None:
        """Make the changes of one transaction, which is committed then; it may also be rolled back."""
        raise NotImplementedError

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()
        assert self.failure is None, self.failure


class Pgbench(threading.Thread):
    """pgbench, begun again whenever PostgreSQL was killed."""

    def __init__(self, bin_dir: Path, dsn: str, *options: str) -> None:
        super().__init__()
        self._command = [str(bin_dir / "pgbench"), *options, dsn]
        self._ended = threading.Event()
        self._failure = ""

    def run(self) -> None:
        while not self._ended.is_set():
            process = subprocess.Popen(
                self._command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            while process.poll() is None and not self._ended.wait(_PAUSE_S):
                pass
            process.terminate()
            _, said = process.communicate()
            # PostgreSQL that is killed or starts answers FATAL, or nothing; these are mistakes of the script.
            if "ERROR:" in said or "syntax error" in said or "undefined variable" in said:
                self._failure = said
                return

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()
        assert not self._failure, self._failure
