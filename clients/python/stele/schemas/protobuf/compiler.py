"""Compiles ``.proto`` texts into descriptors with protoc, in a process of its own.

protoc is a library call of ``grpcio-tools``. It reports errors on the stderr of the process, reads
imports from files, and was not written for hostile input, so each call gets an interpreter that
imports nothing else, in a directory with the texts of this schema alone, and with limits on its
memory, its CPU time and its output. Whatever it does, the caller gets descriptors or ``InvalidSchema``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from ..definitions import InvalidSchema

# How the compiler names the schema itself, in descriptors and messages. No reference can have this name.
MAIN = "default"

_MEMORY_BYTES = 1 << 30
_CPU_SECONDS = 10
# A text that refers to one long name many times makes descriptors of a multiple of its size.
_OUTPUT_BYTES = 16 << 20
# Only reached if the machine is stopped or overloaded: the limit of the CPU time comes first.
_WALL_SECONDS = 120
# The status of the process if protoc refuses the text; 1 is that of an exception, as for want of memory.
_REFUSED = 3
_READ_BYTES, _REPORTED_LINES, _REPORTED_CHARACTERS = 1 << 16, 10, 2000

# Without the site module and the package's own __init__, both of which import more than the compiler needs.
_PROGRAM = f"""
import resource, sys
def limit(kind, most):
    try:
        resource.setrlimit(kind, (most, most))
    except (ValueError, OSError):
        pass
limit(resource.RLIMIT_AS, {_MEMORY_BYTES})
limit(resource.RLIMIT_CPU, {_CPU_SECONDS})
limit(resource.RLIMIT_FSIZE, {_OUTPUT_BYTES})
limit(resource.RLIMIT_CORE, 0)
package = type(sys)("grpc_tools")
package.__path__ = [sys.argv[1]]
sys.modules["grpc_tools"] = package
from grpc_tools import _protoc_compiler
sys.exit({{0: 0, 1: {_REFUSED}}}.get(_protoc_compiler.run_main([word.encode() for word in sys.argv[1:]]), 1))
"""


def compiled(text: str, references: Mapping[str, str]) -> bytes:
    """Return a serialized FileDescriptorSet: every file that ``text`` needs, imports first, ``MAIN`` last.

    Raises:
        InvalidSchema: protoc refuses the text or a reference, with its lines and columns.
    """
    tools = _folder("grpc_tools")
    with tempfile.TemporaryDirectory(prefix="stele-protobuf-") as name:
        folder = Path(name)
        texts = folder / "texts"
        for reference, content in references.items():
            _write(texts, reference, content)
        _write(texts, MAIN, text)
        output = folder / "descriptors"
        arguments = [
            *(f"-I{virtual}={path}" for virtual, path in _known_files(tools).items()),
            # Of the working directory, so that errors name a file as imports do.
            "-I.",
            "--include_imports",
            "--retain_options",
            f"--descriptor_set_out={output}",
            MAIN,
        ]
        # A file has a limit, a pipe has none, and a text may have an error per character.
        with (folder / "errors").open("w+b") as errors:
            try:
                status = subprocess.run(  # noqa: S603 - our own interpreter and program
                    [sys.executable, "-I", "-S", "-c", _PROGRAM, str(tools), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    cwd=texts,
                    timeout=_WALL_SECONDS,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                raise InvalidSchema("protoc did not end in time") from None
            if status == 0:
                return output.read_bytes()
            if status == _REFUSED:
                errors.seek(0)
                raise InvalidSchema(_report(errors.read(_READ_BYTES), (MAIN, *references)))
        raise InvalidSchema(
            f"protoc needs more than {_CPU_SECONDS} s or {_MEMORY_BYTES >> 20} MiB for it, or crashes"
            f" (status {status})"
        )


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def _known_files(tools: Path) -> dict[str, Path]:
    """Return the folders of files that need no reference; they come before references of the same name."""
    return {
        "google/protobuf": tools / "_proto" / "google" / "protobuf",
        "google/type": _folder("google.type"),
        "confluent": Path(__file__).parent / "known" / "confluent",
    }


def _write(folder: Path, name: str, text: str) -> None:
    # No name leads out of the folder, stands for two files, or is both a file and a folder.
    if not re.fullmatch(r"[^/\\\x00]+(/[^/\\\x00]+)*", name) or {".", ".."} & set(name.split("/")):
        raise InvalidSchema(f"no file can have the name of the reference {name!r}")
    path = folder / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise InvalidSchema(
            f"no file can have the name of the reference {name!r}: {error.strerror}"
        ) from None
    except UnicodeEncodeError:
        raise InvalidSchema("the text has lone surrogates, which UTF-8 does not have") from None


def _report(stderr: bytes, names: Iterable[str]) -> str:
    """Return the errors of protoc; what it logs beside them begins with none of the names."""
    lines = stderr.decode("utf-8", "replace").splitlines()
    errors = [
        re.sub(rf"^{MAIN}:(\d+):(\d+): ", r"line \1, column \2: ", line)
        for line in lines
        if ": warning: " not in line and line.startswith(tuple(f"{name}:" for name in names))
    ]
    if not errors:
        return f"protoc refuses it without a reason; its descriptors may have more than {_OUTPUT_BYTES >> 20} MiB"
    return "; ".join(errors[:_REPORTED_LINES])[:_REPORTED_CHARACTERS]
