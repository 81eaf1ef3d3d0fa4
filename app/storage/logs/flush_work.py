"""One sync of a partition: the files that it covers, and the segments that it seals."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from ..disk.files import DISK_FULL, File, Files, is_refusal
from ..disk.whole_files import write_file
from ..segments.partition_files import ABORTED_TRANSACTIONS
from ..segments.segment import Segment

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FlushWork:
    """The work of one sync of a partition; made on the loop, run in a thread."""

    end_offset: int
    files: list[File] = field(default_factory=list[File])
    seals: list[Segment] = field(default_factory=list[Segment])
    sealed: list[Segment] = field(default_factory=list[Segment])
    directory: Path | None = None
    file_system: Files | None = None
    # The list of segments with aborted transactions, if one that is sealed now is among them.
    aborted_list: bytes | None = None
    # What the last of the files gets ahead of its records: from which byte, to which.
    space: tuple[int, int] | None = None
    is_space_refused: bool = False

    @property
    def is_one_sync(self) -> bool:
        """Whether it is the sync of a single file, and nothing else."""
        return len(self.files) == 1 and not self.seals and self.directory is None

    def run(self) -> None:
        """Sync all of it.

        Raises:
            SyncFailedError: then nothing may be called synced, and never again.
            OSError: if ``is_refusal``, nothing was synced, and it may be tried again.
        """
        # Opened first: once the files are synced, nothing may fail.
        directory = None
        if self.directory is not None and self.file_system is not None:
            directory = self.file_system.open_dir(self.directory)
        try:
            self._seal()
            self._allocate()
            for file in self.files:
                file.sync()
            if directory is not None:
                directory.sync()
        finally:
            if directory is not None:
                directory.close()

    def _seal(self) -> None:
        for segment in self.seals:
            try:
                segment.cut_space()
                segment.write_indexes()
                if self.aborted_list is not None and segment.aborted:
                    list_path = segment.path.with_name(ABORTED_TRANSACTIONS)
                    write_file(segment.files, list_path, self.aborted_list)
            except OSError as error:
                if not is_refusal(error):
                    raise
                # The records can be synced all the same; the next flush tries the indexes again.
                logger.warning("%s: its indexes cannot be written yet: %s", segment.path, error)
            else:
                self.sealed.append(segment)

    def _allocate(self) -> None:
        if self.space is not None:
            try:
                self.files[-1].allocate(*self.space)
            except OSError as error:
                # The file grows as it is written.
                logger.debug("%s: no space ahead: %s", self.files[-1].path, error)
                self.is_space_refused = error.errno not in DISK_FULL
