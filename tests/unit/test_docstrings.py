"""Docstrings begin with one short line, and those of long modules say why they are not split."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIRST_LINE_MAX = 80
LINES_MAX = 500
# A reason that names the one thing that the module is.
_REASON = re.compile(r"\b[Oo]ne (class|file)\b")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def long_first_lines(source: str) -> list[str]:
    """Return the first lines of the docstrings in ``source`` that are too long."""
    docstrings = [
        ast.get_docstring(node) for node in ast.walk(ast.parse(source)) if isinstance(node, _DOCUMENTED)
    ]
    lines = [text.partition("\n")[0] for text in docstrings if text]
    return [line for line in lines if len(line) > FIRST_LINE_MAX]


@pytest.mark.parametrize("package", ["app", "clients", "load", "pipelines"])
def test_docstrings_begin_with_a_short_line(package: str) -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / package).rglob("*.py"))
        if (lines := long_first_lines(path.read_text()))
    }
    assert not long, f"at most {FIRST_LINE_MAX} characters, then an empty line and the details"


def test_a_long_line_is_noticed() -> None:
    short = "x" * FIRST_LINE_MAX
    assert long_first_lines(f'"""{short}"""\nclass C:\n    """{short}y\n\n    More."""\n') == [short + "y"]


@pytest.mark.parametrize("package", ["app", "clients"])
def test_a_long_module_says_why_it_is_one_thing(package: str) -> None:
    unexplained = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / package).rglob("*.py"))
        if len((source := path.read_text()).splitlines()) > LINES_MAX
        and not _REASON.search(ast.get_docstring(ast.parse(source)) or "")
    ]
    assert not unexplained, f"split what has more than {LINES_MAX} lines, or say in its opening why it is one"
