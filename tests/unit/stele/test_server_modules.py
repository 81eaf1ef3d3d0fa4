"""The command line finds the modules of the server that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import stele
from stele.commands.server import server_module

_SOURCES = Path(stele.__file__).parent.rglob("*.py")
_NAMES = sorted(
    {name for path in _SOURCES for name in re.findall(r'server_module\("([\w.]+)"\)', path.read_text())}
)


@pytest.mark.parametrize("name", _NAMES)
def test_a_module_that_is_named_exists(name: str) -> None:
    assert server_module(name).__name__ in {f"app.{name}", f"stele.server.{name}"}
