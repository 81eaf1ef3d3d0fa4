"""``docs/formats/replica.md`` has every field of a cut, and its example is a cut."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from app.storage.replica.bucket import KINDS
from app.storage.replica.chain import CutChain
from app.storage.replica.cut import (
    CutHeader,
    Deleted,
    PartitionChange,
    PartitionGone,
    RunSpan,
    StoreChange,
    Unused,
    compress_cut,
    decode_cut,
    encode_line,
)
from app.storage.shared.store.object_keys import size_of
from tests.support.model_store import ModelStore

PAGE = (Path(__file__).resolve().parents[4] / "docs/formats/replica.md").read_text()
KINDS_OF_CHANGES: tuple[type[msgspec.Struct], ...] = (
    PartitionChange,
    PartitionGone,
    StoreChange,
    Unused,
    Deleted,
)


def documented(of: str) -> set[str]:
    """Return the names in backticks after the paragraph, or the heading, that begins with ``of``."""
    _, _, rest = PAGE.partition(f"\n{of}")
    assert rest, f"nothing on the page begins with {of}"
    part = re.split(r"\n(?:#+ |`\w+`: )", rest)[0]
    return set(re.findall(r"`(\w+)`", part))


def fields(kind: type[msgspec.Struct]) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_every_field_of_the_header_and_of_a_run_is_documented() -> None:
    assert fields(CutHeader) <= documented("### The header")
    assert fields(RunSpan) <= documented("`partition`: ")


@pytest.mark.parametrize("kind", KINDS_OF_CHANGES)
def test_every_field_of_a_change_is_documented(kind: type[msgspec.Struct]) -> None:
    assert fields(kind) <= documented(f"`{kind.__struct_config__.tag}`: ")


def test_every_kind_of_object_has_a_row() -> None:
    assert set(re.findall(r"^\| `(\w)/<incarnation>/<number>\.<size>` \|", PAGE, re.MULTILINE)) == set(KINDS)


async def test_the_object_that_a_start_writes_has_a_row() -> None:
    store = ModelStore()
    await CutChain(store).check_conditional_writes()
    assert store.objects == {"check/conditional-writes": b"1"}
    assert "\n| `check/conditional-writes` | the byte `1`, " in PAGE


def test_the_example_is_the_cut_that_the_page_describes() -> None:
    found = re.search(r"```cut\n(.*?)```", PAGE, re.DOTALL)
    assert found
    *lines, end = found[1].splitlines(keepends=True)
    cut = decode_cut(compress_cut([line.encode() for line in lines]))
    assert msgspec.json.decode(end) == {"is": "end", "lines": len(lines)}
    # As a broker would write it.
    assert [encode_line(one) for one in (cut.header, *cut.changes)] == [line.encode() for line in lines]
    assert (cut.header.sequence, cut.header.base, cut.header.generation) == (1, 0, 1)
    partition, store = cut.changes
    assert isinstance(partition, PartitionChange)
    ((base_offset, next_offset, (run,)),) = map(msgspec.structs.astuple, partition.segments)
    assert (base_offset, next_offset, run.base_offset) == (0, 1, 0)
    assert run.position + run.length < size_of(run.object)
    assert isinstance(store, StoreChange)
    assert (store.name, store.size) == ("metadata.sqlite", 3 * store.chunk_bytes)
