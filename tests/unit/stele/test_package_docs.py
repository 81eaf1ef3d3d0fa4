"""The docstrings that explain the client's structure say what the code and the contracts say."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import stele

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "clients" / "python" / "stele"
SUBPACKAGES = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def reading_order(path: Path) -> list[list[str]]:
    """The names that open each item of the docstring's list."""
    items = re.findall(r"^- ((?:``\w+``(?:, )?)+)", docstring(path), re.MULTILINE)
    return [re.findall(r"``(\w+)``", item) for item in items]


def modules(package: Path) -> list[str]:
    files = [path.stem for path in package.glob("*.py") if path.stem != "__init__"]
    return sorted([*files, *(path.parent.name for path in package.glob("*/__init__.py"))])


def name(path: Path) -> str:
    return path.name


# ── reading orders ──


@pytest.mark.parametrize("package", [PACKAGE, *SUBPACKAGES], ids=name)
def test_a_reading_order_names_every_module_once(package: Path) -> None:
    named = [module for item in reading_order(package / "__init__.py") for module in item]
    if package.name == "wire":
        # Its list leaves out what only Spark needs.
        assert set(named) <= set(modules(package))
    else:
        assert sorted(named) == modules(package)


def test_every_folder_with_code_is_a_package_that_the_contracts_see() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_reading_order_of_the_client_is_that_of_its_layers() -> None:
    document: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = document["tool"]["importlinter"]["contracts"]
    (contract,) = [contract for contract in contracts if contract["id"] == "client-layers"]
    layers = [sorted(layer.split(" | ")) for layer in reversed(contract["layers"])]
    assert [sorted(item) for item in reading_order(PACKAGE / "__init__.py")] == layers


# ── the error tree ──


def documented_parents() -> dict[str, str]:
    """Class → base class, as the tree in the docstring of ``stele.errors`` draws them."""
    drawn = re.search(r"::\n\n(.*?)\n\n", docstring(PACKAGE / "errors.py"), re.DOTALL)
    assert drawn
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in drawn[1].splitlines():
        prefix, error = re.match(r"([ │├└─]*)(\w+)", line.removeprefix("    ")).groups()  # type: ignore[union-attr]
        depth = len(prefix) // 4
        above[depth:] = [error]
        parents[error] = above[depth - 1] if depth else "Exception"
    return parents


def declared_parents() -> dict[str, str]:
    """Class → base class, for SteleClientError and everything below it in the whole package."""
    bases: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name):
                bases[node.name] = node.bases[0].id
    parents = {"SteleClientError": "Exception"}
    while more := {e: base for e, base in bases.items() if base in parents and e not in parents}:
        parents |= more
    return parents


def test_the_documented_error_tree_is_the_class_tree() -> None:
    assert documented_parents() == declared_parents()


def test_every_error_has_the_attributes_that_the_tree_names() -> None:
    root = docstring(PACKAGE / "errors.py").splitlines()[4]
    named = re.findall(r" \.(\w+)", root)
    assert named == ["retriable", "code", "is_outcome_unknown"]
    assert all(hasattr(stele.SteleClientError("why"), attribute) for attribute in named)
