"""Decides how much space a segment gets ahead of its records.

A sync of a file that has grown writes the file's new size as well as its records: that is another write that must
reach the disk, and with a journal a commit of it. So a sync now and then gives the file more space, and the next ones
write records only (docs/notes/performance.md). The space reads as zeros until it is written to, and is cut off when the segment is
sealed and when the log is closed.
"""

from __future__ import annotations

# Space comes in whole blocks of the file system.
BLOCK_BYTES = 4096
# Less is not worth a call; more is not worth the space.
AHEAD_BYTES_MIN = 16 * 1024
AHEAD_BYTES_MAX = 1024 * 1024
# A segment gets a quarter of its size, so little space is held by many small partitions.
SIZE_PER_AHEAD = 4
# It must be enough for this many syncs of the present size; otherwise most syncs would allocate more.
SYNCS_PER_AHEAD = 8


def space_end(size: int, allocated: int, unsynced_bytes: int) -> int:
    """Return up to which byte a segment should have space now; 0 if it needs no more.

    ``size`` is the end of its records, ``allocated`` that of its space, ``unsynced_bytes`` what is synced now.
    """
    if allocated - size > max(BLOCK_BYTES, 2 * unsynced_bytes):
        return 0
    ahead = min(AHEAD_BYTES_MAX, size // SIZE_PER_AHEAD)
    if ahead < max(AHEAD_BYTES_MIN, SYNCS_PER_AHEAD * unsynced_bytes):
        return 0
    return (size + ahead) // BLOCK_BYTES * BLOCK_BYTES
