"""The map of keys in bounded memory, against a dict."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.cleaning.key_map import LOAD_MAX, SLOT_BYTES, WITHOUT_KEY, KeyMap


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=3), max_size=300))
def test_it_is_a_dict_of_last_offsets(keys: list[bytes | None]) -> None:
    last: dict[bytes, int] = {}
    replaced_by_dict: list[int] = []
    for offset, key in enumerate(keys):
        if key is not None:
            replaced_by_dict += [last[key]] if key in last else []
            last[key] = offset
    with closing(KeyMap.for_keys(len(keys), memory_bytes=1 << 20)) as key_map:
        replaced: list[int] = []
        assert key_map.put_all(keys, range(len(keys)), replaced) is None
        assert replaced == replaced_by_dict
        assert len(key_map) == len(last)
        assert key_map.last_offsets(last) == list(last.values())
        assert key_map.last_offsets([b"never put", None]) == [-1, WITHOUT_KEY]


@settings(deadline=None)
@given(memory_bytes=st.integers(0, 3_000), salt=st.binary(min_size=16, max_size=16))
def test_a_full_map_refuses_new_keys_and_still_updates_those_it_has(memory_bytes: int, salt: bytes) -> None:
    with closing(KeyMap(memory_bytes, salt=salt)) as key_map:
        names = [b"key %d" % number for number in range(200)]
        replaced: list[int] = []
        taken = key_map.put_all(names, range(200), replaced)
        assert taken is not None
        assert taken == key_map.capacity == len(key_map)
        assert taken * SLOT_BYTES <= max(3 * SLOT_BYTES, memory_bytes * LOAD_MAX)
        assert key_map.put_all([b"key 0", b"another"], [1_000, 1_001], replaced) == 1_001
        assert replaced == [0]
        assert key_map.last_offsets([b"another", b"key 0"]) == [-1, 1_000]
        assert key_map.last_offsets(names[1:taken]) == list(range(1, taken))


@pytest.mark.parametrize("keys_max", [0, 1, 2, 10, 100, 12_345])
def test_a_map_made_for_a_number_of_keys_takes_them_all(keys_max: int) -> None:
    with closing(KeyMap.for_keys(keys_max, memory_bytes=1 << 30)) as key_map:
        assert key_map.capacity >= keys_max


def test_the_largest_offset_and_the_first_are_kept() -> None:
    with closing(KeyMap(1_000)) as key_map:
        assert key_map.put_all([b"", b"last"], [0, 2**63 - 1], []) is None
        assert key_map.last_offsets([b"", b"last"]) == [0, 2**63 - 1]
