"""Decode a large record in several turns of the event loop.

The codec copies a record in one call that holds the interpreter, so a thread would not help: a value of 60 MiB takes 25
ms, most of them for memory that is used for the first time.
"""

from __future__ import annotations

from typing import cast

from stele.wire import record_batch as rb
from stele.wire.header_names import LenientRecord
from stele.wire.lone_record import lone_record

from ...work_budget import pause

# The codec copies a smaller record in about 2 ms.
LARGE_BATCH_BYTES = 4 * 1024 * 1024
COPIED_PER_TURN = 1024 * 1024
# The codec decodes more headers in less time.
_HEADERS_MAX = 1000


async def record_of(batch: bytes | bytearray, header: rb.BatchHeader) -> rb.RecordView | None:
    """Return the only record of an uncompressed batch at ``header.position``.

    None if the codec must decode it.

    Raises ``CorruptBatchError``.
    """
    view = memoryview(batch)[header.position : header.position + header.size]
    try:
        parts = lone_record(
            view,
            rb.HEADER_BYTES,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
            headers_max=_HEADERS_MAX,
        )
    except (IndexError, ValueError) as error:
        raise rb.CorruptBatchError(f"records do not parse: {error}", position=header.position) from error
    if parts is None:
        return None
    key, value = await _copy(parts.key), await _copy(parts.value)
    headers = [
        (bytes(name or b"").decode(errors="replace"), await _copy(content)) for name, content in parts.headers
    ]
    kind = int(header.is_log_append_time)
    return LenientRecord(parts.offset, parts.timestamp, key, value, headers, kind)


async def _copy(part: memoryview | None) -> bytes | None:
    if part is None or len(part) <= COPIED_PER_TURN:
        return None if part is None else bytes(part)
    copied = bytearray()
    for start in range(0, len(part), COPIED_PER_TURN):
        copied += part[start : start + COPIED_PER_TURN]
        await pause()
    # No one changes it, and it has all that readers of bytes use; bytes would have to be copied at once.
    return cast("bytes", copied)
