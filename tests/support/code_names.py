"""The names that the repository has: modules, symbols, words of its strings, routes, metrics, commands.

Comments and docstrings do not count: a name that only they still know is stale.
Neither do Markdown pages, nor the modules that hold the exceptions of these checks.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click
from stele.cli import stele as cli

from tests.support.documents import ROOT

PACKAGES = ("app", "stele", "pyspark_stele", "load", "tests", "pipelines")
_SOURCES = ("app", "clients", "load", "tests", "pipelines", "deploy", ".ci")
_UNREAD = {"tests/unit/test_doc_names.py", "tests/integration/test_doc_examples.py", "LICENSE"}
# Comments and docstrings: what begins a line in triple quotes. To parse the files would take ten seconds.
_PROSE = re.compile(r'^\s*[rR]?"""[\s\S]*?"""|(?:^|\s)#(?:\s.*|)$', re.MULTILINE)
_WORD = re.compile(r"--[a-z][\w-]*|[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*")


@cache
def tracked() -> tuple[str, ...]:
    """Return every file that git has or would add, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return tuple(sorted(file for file in set(listed) if (ROOT / file).exists()))


@cache
def folders() -> frozenset[str]:
    return frozenset(str(parent) for file in tracked() for parent in Path(file).parents)


def _words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match[0]
        yield word
        yield from re.split(r"[.-]", word)


@cache
def words() -> frozenset[str]:
    """Return every name and every word of a string in the code, and of files that are not Python."""
    found: set[str] = set()
    for file in tracked():
        path = ROOT / file
        found |= {path.stem, path.name}
        if file in _UNREAD or path.suffix in {".md", ".png", ".svg"}:
            continue
        if path.suffix == ".py":
            found.update(_words(_PROSE.sub("", path.read_text())))
        elif "/" not in file or file.startswith(_SOURCES):
            found.update(_words(path.read_text(errors="replace")))
    return frozenset(found)


def is_module(dotted: str) -> bool:
    try:
        return importlib.util.find_spec(dotted) is not None
    except (ModuleNotFoundError, ValueError):
        return False


def resolves(dotted: str) -> bool:
    """Tell whether ``dotted`` is a module, or an attribute of one."""
    # In the wheel, app is stele.server (ADR-0005).
    dotted = re.sub(r"^stele\.server\b", "app", dotted)
    if is_module(dotted):
        return True
    module, _, attribute = dotted.rpartition(".")
    if not module:
        return False
    if is_module(module):
        return hasattr(importlib.import_module(module), attribute)
    outer, _, owner = module.rpartition(".")
    return is_module(outer) and hasattr(getattr(importlib.import_module(outer), owner, None), attribute)


# ── metrics ──


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as it is declared: its name without the suffix of a counter, and its labels."""

    name: str
    labels: tuple[str, ...]
    source: str

    @property
    def series(self) -> set[str]:
        return {self.name + suffix for suffix in ("", "_total", "_bucket", "_sum", "_count")}


_METRIC_TYPES = {
    "Counter",
    "Gauge",
    "Histogram",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
}


def _constants(node: ast.AST | None) -> tuple[str, ...]:
    if not isinstance(node, ast.Tuple | ast.List):
        return ()
    return tuple(
        element.value
        for element in node.elts
        if isinstance(element, ast.Constant) and isinstance(element.value, str)
    )


def _is_metric(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(re.fullmatch(r"stele_[a-z_]+", node.value))
    )


@cache
def metrics() -> tuple[Metric, ...]:
    """Return the metrics of the broker, as ``app`` declares them: in a constructor, or in a table of rows."""
    found: dict[str, Metric] = {}
    for path in sorted((ROOT / "app").rglob("*.py")):
        text = path.read_text()
        # To parse every file would take most of a second of each process that collects tests.
        if '"stele_' not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Name(id=kind), args=[first, *others]) if (
                    kind in _METRIC_TYPES and _is_metric(first)
                ):
                    labels = next((k.value for k in node.keywords if k.arg == "labels"), None)
                    names = _constants(labels) or (_constants(others[1]) if len(others) > 1 else ())
                case ast.Tuple(elts=elements) if any(map(_is_metric, elements)):
                    first = next(element for element in elements if _is_metric(element))
                    names = ()
                case _:
                    continue
            assert isinstance(first, ast.Constant)
            found[str(first.value)] = Metric(
                str(first.value), names, f"{path.relative_to(ROOT)}:{node.lineno}"
            )
    return tuple(found.values())


# ── the command line ──


def command_problem(line: str) -> str | None:
    """Return what is wrong with ``line``, a call of ``stele``, or None: its commands and options must exist."""
    command: click.Command = cli
    path = "stele"
    left = iter(line.split()[1:])
    for word in left:
        if word in {"<", ">", "|", "&&", ";"}:
            return None
        if word.startswith("-") and not re.match(r"-\d", word):
            option = word.partition("=")[0]
            known = {o for parameter in command.params for o in (*parameter.opts, *parameter.secondary_opts)}
            if option not in known | {"--help", "-h", "--version"} and not command.ignore_unknown_options:
                return f"`{path}` has no option {option}"
            # The value of an option is no command.
            takes_value = any(
                isinstance(parameter, click.Option) and option in parameter.opts and not parameter.is_flag
                for parameter in command.params
            )
            if isinstance(command, click.Group) and takes_value and "=" not in word:
                next(left, None)
        elif isinstance(command, click.Group):
            if not re.fullmatch(r"[a-z-]+", word):
                return None
            chosen = command.get_command(click.Context(command), word)
            if chosen is None:
                return f"`{path}` has no command {word}"
            command, path = chosen, f"{path} {word}"
    return None
