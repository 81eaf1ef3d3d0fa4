"""The data directory as a whole: its lock, how the last run ended, what is stray in it.

::

    data/
      lock                                 held while a broker runs; its process id inside
      clean-shutdown                       there exactly when the last run opened and closed everything
      start-record                         leader epoch of the last start, and its boot id once all is recovered
      recovery-point-offset-checkpoint     see checkpoint
      log-start-offset-checkpoint
      space-kept-back                      see kept_space
      metadata.sqlite groups.sqlite        the catalog; consumer groups and their offsets (app/cluster)
      orders-0/ orders-1/ …                one directory a partition (log)
      <topic id>-2.<time in ms>.deleted    a partition that is being deleted
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from ...errors import DataDirLocked
from ..disk.files import Files, Lock
from ..disk.whole_files import read_file, write_file
from ..engine import EngineStart

logger = logging.getLogger(__name__)

LOCK = "lock"
CLEAN_SHUTDOWN = "clean-shutdown"
START_RECORD = "start-record"


class _Record(TypedDict):
    boot_id: str
    leader_epoch: int


def start_record(*, boot_id: str, leader_epoch: int) -> bytes:
    """Return the content of ``START_RECORD``."""
    return json.dumps({"boot_id": boot_id, "leader_epoch": leader_epoch}).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(EngineStart):
    """The result of this start. ``leader_epoch`` rises after an unclean one."""

    same_boot: bool
    leader_epoch: int


class DataDir:
    """Takes the directory for this process, and knows how it was left."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self._lock: Lock | None = None
        self._record = _Record(boot_id="", leader_epoch=0)

    def take(self, on_locked: Callable[[], object] = lambda: None) -> Start:
        """Lock the directory and note that a run has begun.

        ``on_locked`` is called before anything is written.

        Raises:
            DataDirLocked: another process has it.
            OSError: it cannot be used.
        """
        self._files.make_dir(self.path)
        try:
            self._lock = self._files.lock(self.path / LOCK)
        except BlockingIOError as error:
            owner = (read_file(self._files, self.path / LOCK) or b"").decode(errors="replace").strip()
            raise DataDirLocked(self.path, f" (process {owner})" if owner else "") from error
        try:
            self._files.make_private(self.path)
            on_locked()
            return self._begin()
        except OSError:
            self.release(clean=False)
            raise

    def _begin(self) -> Start:
        was_clean = self._files.exists(self.path / CLEAN_SHUTDOWN)
        record = self._read_record()
        boot_id = self._files.boot_id()
        start = Start(
            is_new=record is None and not was_clean,
            was_clean=was_clean,
            same_boot=bool(boot_id) and record is not None and record.get("boot_id") == boot_id,
            leader_epoch=self._leader_epoch(record, was_clean=was_clean),
        )
        if record is None:
            # Before the record, whose presence says that the directory itself lasts.
            self._files.sync_dir(self.path.parent)
        # The mark goes before the first append can come, and its going must last.
        if was_clean:
            self._files.remove(self.path / CLEAN_SHUTDOWN)
        # A crash of the machine counts until the logs are recovered, even if the process dies meanwhile.
        is_settled = was_clean or start.same_boot
        self._record = _Record(boot_id=boot_id if is_settled else "", leader_epoch=start.leader_epoch)
        self._write_record()
        return start

    def settle(self) -> None:
        """Every partition is recovered: from now on the death of the process is only that."""
        boot_id = self._files.boot_id()
        if self._record["boot_id"] != boot_id:
            self._record["boot_id"] = boot_id
            self._write_record()

    def _write_record(self) -> None:
        write_file(self._files, self.path / START_RECORD, start_record(**self._record))

    def _read_record(self) -> dict[str, object] | None:
        raw = read_file(self._files, self.path / START_RECORD)
        if raw is None:
            return None
        try:
            record = json.loads(raw)
        except ValueError:
            logger.warning("%s is corrupt; the logs are scanned", self.path / START_RECORD)
            return {}
        return cast("dict[str, object]", record) if isinstance(record, dict) else {}

    @staticmethod
    def _leader_epoch(record: dict[str, object] | None, *, was_clean: bool) -> int:
        if record is None:
            return 0
        last = record.get("leader_epoch")
        epoch = last if isinstance(last, int) else 0
        return epoch if was_clean else epoch + 1

    def partition_dir(self, topic: str, partition: int) -> Path:
        return self.path / f"{topic}-{partition}"

    def release(self, *, clean: bool, on_written: Callable[[], object] = lambda: None) -> None:
        """Give the directory back; ``clean`` leaves the mark that spares the next start its scan.

        ``on_written`` is called when nothing more is written.
        """
        try:
            if clean:
                write_file(self._files, self.path / CLEAN_SHUTDOWN, b"")
            if self._lock is not None:
                on_written()
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None
