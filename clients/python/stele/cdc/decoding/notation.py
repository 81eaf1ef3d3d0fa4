"""PostgreSQL's notation of LSNs and names. No I/O."""

from __future__ import annotations


def lsn_of(text_: str) -> int:
    """Parse an LSN such as ``16/B374D848``."""
    high, low = text_.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def split_name(name: str) -> tuple[str, str]:
    """Split ``schema.table``; a name without a schema is of ``public``."""
    schema, dot, table = name.partition(".")
    return (schema, table) if dot else ("public", name)


def quoted_name(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


def quoted_table(schema: str, table: str) -> str:
    return f"{quoted_name(schema)}.{quoted_name(table)}"
