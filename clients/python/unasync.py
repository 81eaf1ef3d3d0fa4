"""Writes the blocking modules of ``stele`` from the asyncio ones, which are the source.

Without arguments it writes them (``make format``); with ``--check`` it fails if one of them differs
(``make lint``).

The rules apply to the whole text, because examples in docstrings change with the code. Then ruff removes
unused imports, sorts the others, and joins lines that became short. What is still about asyncio is an
error: it needs a rule, other words, or a name in both ``async_concurrency`` and ``concurrency``.
"""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(__file__).resolve().parent / "stele"
SOURCES = (
    "async_client.py",
    "consuming/async_consumer.py",
    "grouping/async_group.py",
    "grouping/async_queue.py",
    "producing/async_producer.py",
    "registry/async_deserializer.py",
    "registry/async_registry.py",
    "tables/async_table.py",
    "transactions/async_transaction.py",
    "transport/async_http.py",
    "transport/async_transport.py",
)

RULES = (
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bThe asyncio (?=[a-z])", "The blocking "),
    # "An ``async with`` block"
    (r"\b([Aa])n (`*)(?=async )", r"\1 \2"),
    (r"\b(?:async|await) ", ""),
    (r"\b__a(?=(?:enter|exit|iter|next)__)", "__"),
    (r"\baclose\b", "close"),
    (r"\baiter_raw\b", "iter_raw"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"(?:\b|(?<=_))async_(?=[a-z])", ""),
)
# What the documentation says of threads instead of tasks. Each phrase must stand in its file, in one line.
PHRASES = {
    "async_client.py": (
        ("tasks of one event loop", "threads or gevent greenlets"),
        ("use it in an event loop of its own,", "go on with it,"),
    ),
    "consuming/async_consumer.py": (
        ("in a task,", "in a thread,"),
        ("It fetches ahead while the application works.", "It fetches when its buffer is empty, not ahead."),
        ("from one task at a time", "from one thread at a time"),
        ("if none came within ``timeout_s``", "if none came within about ``timeout_s``"),
    ),
    "producing/async_producer.py": (
        (
            "It is bound to the event loop of its first call.",
            "Any number of threads may use it; its own is a daemon.",
        ),
        ("return a future for its receipt", "return a future, not cancellable, for its receipt"),
        ("after the caller was cancelled", "after the caller was interrupted"),
    ),
    "registry/async_registry.py": (("tasks of one event loop", "threads"),),
    "tables/async_table.py": (
        ("then tasks follow", "then daemon threads follow"),
        ("Reading does not wait.", "Any number of threads may read it."),
        ("there are no tasks", "there are no threads"),
        ("begin to follow it.", "begin to follow it; the first access does this too."),
        ("an asynchronous iterator", "an iterator"),
    ),
    "transport/async_http.py": (("for asyncio", "for threads"),),
    "transport/async_transport.py": (
        (
            "of one event loop; any number of tasks may call at once",
            "of any number of threads or gevent greenlets",
        ),
    ),
}
# Whatever of asyncio a rule has missed.
LEFT_OVER = re.compile(r"async|\bawait\b|\bcoroutines?\b|\bevent loops?\b|\btasks?\b", re.IGNORECASE)


def target_of(source: str) -> Path:
    path = PACKAGE / source
    return path.with_name(path.name.removeprefix("async_"))


def generate(source: str) -> str:
    """Return the text of the blocking module.

    Raises:
        ValueError: something of asyncio is left, or a phrase does not stand in the source.
    """
    text = (PACKAGE / source).read_text()
    for phrase, replacement in PHRASES.get(source, ()):
        if phrase not in text:
            raise ValueError(f"{source}: remove the phrase {phrase!r}, which it does not contain")
        text = text.replace(phrase, replacement)
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    for number, line in enumerate(text.splitlines(), 1):
        if left := LEFT_OVER.search(line):
            raise ValueError(f"{source}:{number}: {left[0]!r} is left in: {line.strip()}")
    header = f"# Generated from {Path(source).name} by clients/python/unasync.py: edit that, then run `make format`.\n"
    return _formatted(header + text, target_of(source))


def _formatted(text: str, path: Path) -> str:
    """Return the text without unused imports, and as ``make format`` writes it."""
    for command in (("check", "--fix"), ("format",)):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(path), "-"]
        done = subprocess.run(ruff, input=text, capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603
        if done.returncode:
            raise ValueError(f"{path.name}, as generated, does not pass ruff: {done.stdout}{done.stderr}")
        text = done.stdout
    return text


def difference(source: str) -> str:
    """Return how the blocking module differs from what its source makes; empty if it does not."""
    path = target_of(source)
    name = str(path.relative_to(ROOT))
    present = path.read_text() if path.exists() else ""
    lines = difflib.unified_diff(
        present.splitlines(keepends=True), generate(source).splitlines(keepends=True), name, "generated"
    )
    return "".join(lines)


def main() -> None:
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: unasync.py [--check]")
    try:
        if not sys.argv[1:]:
            for source in SOURCES:
                target_of(source).write_text(generate(source))
        elif differences := [text for source in SOURCES if (text := difference(source))]:
            sys.exit(
                "".join(differences)
                + "Blocking modules differ from what the asyncio ones make: edit those, then run `make format`."
            )
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
