"""Encode records with what their schemas made of the key and the value."""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType, field
from stele.wire.record_batch import RecordView

from ...registry.values import DecodedPart, DecodedRecord
from .json_records import RecordOut, View, head_of, preview_out, record_out


class DecodedRecordOut(RecordOut):
    """A record whose key, value or both are shown as what their schemas say."""

    schema: Raw | UnsetType = UNSET
    key_schema: Raw | UnsetType = field(default=UNSET, name="keySchema")


def decoded_out(
    partition: int, record: RecordView, decoded: DecodedRecord, *, preview: int, headers_max: int
) -> RecordOut:
    """Encode a record with what was decoded of it in place of the bytes; ``preview`` as ``RecordForm`` has it."""
    key, value = decoded
    rest = View(
        record.offset,
        record.timestamp,
        record.key if key is None else None,
        record.value if value is None else None,
        record.headers,
    )
    if preview:
        shown = preview_out(partition, rest, bytes_max=preview, headers_max=headers_max)
    else:
        shown = record_out(partition, rest, parse_values=False)
    out = DecodedRecordOut(**{name: getattr(shown, name) for name in RecordOut.__struct_fields__})
    if key is not None:
        out.key_schema = Raw(key.schema)
        out.key = _shown_part(key, preview, out)
    if value is not None:
        out.schema = Raw(value.schema)
        out.value = _shown_part(value, preview, out)
        if preview:
            out.value_bytes = len(record.value or b"")
    return out


def with_texts(record: RecordView, decoded: DecodedRecord) -> RecordView:
    """Return a record whose key and value are the JSON that was decoded of them."""
    return View(
        record.offset,
        record.timestamp,
        record.key if decoded.key is None else decoded.key.text,
        record.value if decoded.value is None else decoded.value.text,
        record.headers,
    )


def _shown_part(part: DecodedPart, preview: int, out: RecordOut) -> Raw | str:
    """Return what was decoded; with a preview, the beginning of it as text if it is longer."""
    if not preview or len(part.text) <= preview:
        return Raw(part.text)
    out.is_cut = True
    return (head_of(part.text, preview) or b"").decode(errors="replace")
