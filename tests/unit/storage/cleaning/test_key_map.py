"""The map of keys in bounded memory, against a dict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.storage.cleaning.key_map import LOAD_MAX, SLOT_BYTES, KeyMap


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3), max_size=300))
def test_it_is_a_dict_of_last_offsets(keys: list[bytes]) -> None:
    last = {key: offset for offset, key in enumerate(keys)}
    with KeyMap.for_keys(len(keys), memory_bytes=1 << 20) as key_map:
        assert all(key_map.put(key, offset) for offset, key in enumerate(keys))
        assert len(key_map) == len(last)
        assert {key: key_map.last_offset(key) for key in last} == last
        assert key_map.last_offset(b"never put") == -1


@settings(deadline=None)
@given(memory_bytes=st.integers(0, 3_000), salt=st.binary(min_size=16, max_size=16))
def test_a_full_map_refuses_new_keys_and_still_updates_those_it_has(memory_bytes: int, salt: bytes) -> None:
    with KeyMap(memory_bytes, salt=salt) as key_map:
        taken = 0
        while key_map.put(b"key %d" % taken, taken):
            taken += 1
        assert taken == key_map.capacity == len(key_map)
        assert taken * SLOT_BYTES <= max(3 * SLOT_BYTES, memory_bytes * LOAD_MAX)
        assert key_map.put(b"key 0", 1_000)
        assert not key_map.put(b"another", 1_001)
        assert key_map.last_offset(b"another") == -1
        assert key_map.last_offset(b"key 0") == 1_000
        assert all(key_map.last_offset(b"key %d" % number) == number for number in range(1, taken))


@pytest.mark.parametrize("keys_max", [0, 1, 2, 10, 100, 12_345])
def test_a_map_made_for_a_number_of_keys_takes_them_all(keys_max: int) -> None:
    with KeyMap.for_keys(keys_max, memory_bytes=1 << 30) as key_map:
        assert key_map.capacity >= keys_max


def test_the_largest_offset_and_the_first_are_kept() -> None:
    with KeyMap(1_000) as key_map:
        assert key_map.put(b"", 0)
        assert key_map.put(b"last", 2**63 - 1)
        assert (key_map.last_offset(b""), key_map.last_offset(b"last")) == (0, 2**63 - 1)
