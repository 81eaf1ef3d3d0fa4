"""The trees and reading orders that docstrings draw are those of the code.

A package either lists its modules in its docstring, or stands in ``UNORDERED``
with the reason why an order would say nothing.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.support.documents import ROOT, name

PACKAGES = sorted(
    path.parent
    for folder in ("app", "clients/python")
    for path in (ROOT / folder).rglob("__init__.py")
    if "static" not in path.parts
)
UNORDERED = {
    "app": "docs/architecture.md has the reading order of the broker",
    "app/api/routes": "one module per subject, in any order",
    "app/tcp/kafka/handlers": "one module per API or subject, in any order",
    "clients/python/stele/wire/messages": "one module per subject; the package exports all messages",
}
# A package of so many modules is understood from its one line.
FEW = 3


def docstring(path: Path) -> str:
    return docstring_of(path.read_text())


def docstring_of(text: str) -> str:
    return ast.get_docstring(ast.parse(text)) or ""


def modules(package: Path) -> set[str]:
    """Return the modules and packages of ``package``; a folder of data is neither."""
    inside = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return inside | {path.parent.name for path in package.glob("*/__init__.py")}


def named(text: str) -> set[str]:
    return set(re.findall(r"``([a-z_0-9]+)``", text))


def listed_modules(text: str) -> set[str]:
    """Return what a docstring lists: the names that begin its bullets, otherwise every name in it."""
    bullets = re.findall(r"^- ((?:``\w+``(?:, )?)+)", text, re.MULTILINE)
    return named("".join(bullets)) or named(text)


def has_order(text: str) -> bool:
    return "eading order" in text or bool(re.search(r"^- ``\w+``", text, re.MULTILINE))


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_a_package_lists_the_modules_that_it_has(package: Path) -> None:
    text = docstring(package / "__init__.py")
    file = name(package / "__init__.py")
    if has_order(text):
        assert name(package) not in UNORDERED, f"{file} has an order: remove it from UNORDERED of this test"
        stale = listed_modules(text) - modules(package)
        assert not stale, (
            f"{file}: the docstring lists {sorted(stale)}, which are no modules of it: remove or rename"
        )
    elif name(package) in UNORDERED or len(modules(package)) <= FEW:
        return
    missing = modules(package) - named(text)
    assert not missing, (
        f"{file}: the docstring does not name the modules {sorted(missing)}: give the reading order of all, "
        "or the reason why there is none in UNORDERED of this test"
    )


def test_no_package_is_excused_that_does_not_exist() -> None:
    assert set(UNORDERED) <= {name(package) for package in PACKAGES}


def test_the_reading_order_of_the_client_is_the_order_of_its_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["id"] == "client-layers")
    layers = [set(re.split(r" \| ", layer)) for layer in reversed(contract["layers"])]
    text = docstring(ROOT / "clients/python/stele/__init__.py")
    lines = [
        set(re.findall(r"``(\w+)``", bullet))
        for bullet in re.findall(r"^- ((?:``[\w]+``(?:, )?)+)", text, re.MULTILINE)
    ]
    assert lines == layers, "stele/__init__.py and client-layers of pyproject.toml give different orders"


# ── class trees ──


def drawn_tree(text: str) -> dict[str, str | None]:
    """Return the parent of each class of a tree that is drawn with ├── and └──."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    indent = 0
    for line in text.splitlines():
        match = re.match(r"((?:[│ ]   )*)(?:├── |└── )(\w+)", line[indent:])
        if match is None:
            # The root is the name on the line above the first branch.
            if not parents:
                path, indent = re.findall(r"^ *(\w+)", line), len(line) - len(line.lstrip())
            continue
        depth = len(match[1]) // 4 + 1
        if not parents:
            parents[path[0]] = None
        del path[depth:]
        path.append(match[2])
        parents[match[2]] = path[depth - 1]
    return parents


def class_tree(files: list[Path], root: str) -> dict[str, str | None]:
    """Return the parent of each class of ``files`` that descends from ``root``, by its first base of the tree."""
    bases = {
        node.name: [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        for file in files
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
    tree: dict[str, str | None] = {root: None}
    grown = True
    while grown:
        children = {
            child: next(base for base in parents if base in tree)
            for child, parents in bases.items()
            if child not in tree and any(base in tree for base in parents)
        }
        tree |= children
        grown = bool(children)
    return tree


DRAWN = sorted(
    path
    for folder in ("app", "clients/python")
    for path in (ROOT / folder).rglob("*.py")
    # To parse every file would take a second of each process that collects tests.
    if "├── " in (text := path.read_text()) and "├── " in docstring_of(text)
)


def test_the_trees_of_errors_are_drawn() -> None:
    drawn = {name(path) for path in DRAWN}
    assert drawn & {"app/errors.py", "app/errors/__init__.py"}
    assert "clients/python/stele/errors.py" in drawn


@pytest.mark.parametrize("path", DRAWN, ids=name)
def test_a_class_tree_in_a_docstring_is_that_of_the_code(path: Path) -> None:
    drawn = drawn_tree(docstring(path))
    root = next(iter(drawn))
    files = sorted(path.parent.glob("*.py")) if path.name == "__init__.py" else [path]
    real = class_tree(files, root)
    # A class of another module may be drawn with the module named beside it.
    elsewhere = {
        child
        for child in drawn.keys() - real.keys()
        if re.search(rf"{child}\s+(?:stele|app)\.[\w.]+:", docstring(path))
    }
    stale, missing = drawn.keys() - real.keys() - elsewhere, real.keys() - drawn.keys()
    assert not stale, f"{name(path)}: the docstring draws {sorted(stale)}, which no longer exist: remove them"
    assert not missing, f"{name(path)}: the docstring does not draw {sorted(missing)}: add them"
    moved = [f"{child} under {real[child]}" for child in real if drawn[child] != real[child]]
    assert not moved, f"{name(path)}: draw {', '.join(moved)}, as the code has it"
