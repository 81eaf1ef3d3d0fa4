"""What is imported when: the broker imports the wire layer, and every pytest run the plugin."""

from __future__ import annotations

import subprocess
import sys

import pytest
import stele

HEAVY = ("httpx", "asyncio", "msgspec", "fastapi", "pydantic", "cramjam", "aiokafka")


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement", ["import stele", "import stele.wire.messages", "import stele.wire.framing"]
)
def test_the_wire_layer_does_not_import_a_client(statement: str) -> None:
    assert modules_after(statement).isdisjoint(HEAVY)


def test_the_pytest_plugin_adds_nothing_heavy() -> None:
    added = modules_after("import pytest, stele.testing") - modules_after("import pytest")
    assert added.isdisjoint(HEAVY)


def test_the_command_line_imports_no_client_before_a_command_needs_it() -> None:
    assert modules_after("import stele.cli").isdisjoint(HEAVY)


def test_a_tcp_client_does_not_import_an_http_one() -> None:
    assert "httpx" not in modules_after("import stele; stele.AsyncClient('stele://localhost')")


@pytest.mark.parametrize("name", stele.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(stele, name).__name__ == name


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Brocker'"):
        _ = stele.Brocker  # pyright: ignore[reportAttributeAccessIssue,reportUnknownVariableType]
    assert "AsyncClient" in dir(stele)
