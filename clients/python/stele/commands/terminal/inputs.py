"""Parse lines of text, NDJSON or CSV into keys and values."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import click
import msgspec


class Input(NamedTuple):
    """A record to write; ``consumed_bytes`` is its share of the input, for progress."""

    key: bytes | None
    value: bytes
    consumed_bytes: int


def lines(source: Iterable[bytes], key_separator: str | None) -> Iterator[Input]:
    """Yield a record per line: ``value``, or ``key<separator>value``."""
    separator = key_separator.encode() if key_separator else None
    for number, line in enumerate(source, 1):
        value = line.rstrip(b"\r\n")
        key = None
        if separator is not None:
            key, matched, value = value.partition(separator)
            if not matched:
                raise click.ClickException(f"line {number} has no key separator {key_separator!r}")
        yield Input(key, value, len(line))


def ndjson(source: Iterable[bytes], key_field: str | None) -> Iterator[Input]:
    """Yield each line unchanged after checking that it is JSON; skip empty lines."""
    for number, line in enumerate(source, 1):
        value = line.strip()
        if not value:
            continue
        try:
            document = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise click.ClickException(f"line {number} is not JSON: {error}") from error
        yield Input(_key(document, key_field, number), value, len(line))


def csv_rows(source: Iterable[bytes], key_field: str | None) -> Iterator[Input]:
    """Yield each row as a JSON object of strings, named by the first row."""
    sizes: list[int] = []

    def text() -> Iterator[str]:
        for line in source:
            sizes.append(len(line))
            yield line.decode("utf-8-sig" if len(sizes) == 1 else "utf-8")

    reader = csv.DictReader(text())
    try:
        for row in reader:
            if None in row or None in row.values():
                raise click.ClickException(
                    f"the row that ends at line {reader.line_num} does not have the columns of the header row"
                )
            consumed = sum(sizes)
            sizes[:] = [0]
            yield Input(_key(row, key_field, reader.line_num), msgspec.json.encode(row), consumed)
    except (csv.Error, UnicodeDecodeError) as error:
        raise click.ClickException(f"line {reader.line_num + 1} is not CSV: {error}") from error


def _key(document: object, key_field: str | None, number: int) -> bytes | None:
    if key_field is None:
        return None
    if not isinstance(document, dict) or key_field not in document:
        raise click.ClickException(f"line {number} has no field {key_field!r} for the key")
    key = cast("dict[str, Any]", document)[key_field]
    if key is None:
        return None
    return key.encode() if isinstance(key, str) else msgspec.json.encode(key)
