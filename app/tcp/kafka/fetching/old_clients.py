"""Answer clients that are older than the format of the log, with message sets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from stele.wire.error_codes import ErrorCode
from stele.wire.record_batch import CorruptBatchError, iter_headers, plain_size_max

from ....broker.reading.decoded_bytes import UNCOUNTED_BYTES
from ....broker.reading.fetch import Fetched, end_of
from ....errors import ReadMemoryFull
from ...errors import error_code_of
from ..context import Context
from ..message_set import MessageSetTooLarge, UnsupportedCodec, down_convert
from .looks import Answer, Look

# Fetch v0 and v1 return messages of magic 0, v2 and v3 of magic 1 (KIP-31).
FIRST_WITH_BATCHES = 4
_FIRST_WITH_MAGIC_1 = 2


def pass_over(look: Look, reads: Sequence[Fetched], answers: Sequence[Answer]) -> bool:
    """Want what follows batches without a message for an old client, as markers.

    The client would ask for them again for ever, because only a message moves it on. False if there
    are none. ``answers`` are those for ``reads``, converted, and others.
    """
    is_passed = False
    for index, (read, answer) in enumerate(zip(reads, answers, strict=False)):
        if read.batches and not answer.records_size and not answer.data.error_code:
            wanted = look.wanted[index]
            look.wanted[index] = replace(wanted, offset=end_of(read, wanted.offset))
            is_passed = True
    return is_passed


async def make_message_set(context: Context, answer: Answer) -> None:
    """Convert the batches of an answer to message sets or an error."""
    records = answer.data.records
    if not records:
        return
    magic = 1 if context.version >= _FIRST_WITH_MAGIC_1 else 0
    # One batch at a time is unpacked.
    size = max((plain_size_max(records, header) for header in iter_headers(records)), default=0)
    held_bytes, reader = size if size > UNCOUNTED_BYTES else 0, context.broker.decoded.reader()
    try:
        if held_bytes:
            await reader.hold(held_bytes, f"a batch of {answer.partition.topic} for an old client")
    except ReadMemoryFull as error:
        answer.refuse(error_code_of(error))
        return
    try:
        # In a thread, because every record is decoded and encoded again.
        answer.data.records = await asyncio.to_thread(
            down_convert, records, magic=magic, from_offset=answer.partition.offset, max_bytes=len(records)
        )
        return
    except UnsupportedCodec:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    except MessageSetTooLarge:
        code = ErrorCode.MESSAGE_TOO_LARGE
    except CorruptBatchError:
        code = ErrorCode.CORRUPT_MESSAGE
    finally:
        if held_bytes:
            reader.release(held_bytes)
    answer.refuse(code)
