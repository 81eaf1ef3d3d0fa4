"""The recorded OpenAPI document, ``tests/golden/openapi.json``: one line per operation and component.

``python -m tests.support.openapi_document`` records it again after a change of the HTTP API.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from tests.support.http_application import application
from tests.support.simulated_time import SimulatedClock

RECORDED = Path(__file__).parents[1] / "golden" / "openapi.json"
_PROVENANCE = (
    "Served by GET /openapi.json, without info.version; first recorded when all operations were declared in one "
    "module, app/api/openapi.py, and FastAPI was 0.165.0. Only a change of the HTTP API changes this file; record "
    "it again with: python -m tests.support.openapi_document"
)


async def served_document(path: Path) -> dict[str, Any]:
    """Return the document of an application opened in ``path``, as a client parses it."""
    async with application(path, SimulatedClock()) as app:
        document: dict[str, Any] = json.loads(json.dumps(app.openapi()))
    # The version is that of the installed package.
    del document["info"]["version"]
    return document


def recorded_document() -> dict[str, Any]:
    return json.loads(RECORDED.read_text())["document"]


def _as_lines(document: dict[str, Any]) -> str:
    """JSON in which each operation and each component has a line of its own, so that a diff shows which of them changed."""

    def text(value: object) -> str:
        # Sorted, so that a diff does not show the order in which the code names things.
        return json.dumps(value, ensure_ascii=False, sort_keys=True)

    paths = ",\n".join(
        f"{text(path)}: {{\n"
        + ",\n".join(f" {text(method)}: {text(operation)}" for method, operation in item.items())
        + "\n}"
        for path, item in document["paths"].items()
    )
    components = ",\n".join(
        f"{text(kind)}: {{\n"
        + ",\n".join(f" {text(name)}: {text(one)}" for name, one in named.items())
        + "\n}"
        for kind, named in document["components"].items()
    )
    others = ",\n".join(
        f"{text(name)}: {{\n{components}\n}}" if name == "components" else f"{text(name)}: {text(part)}"
        for name, part in document.items()
        if name != "paths"
    )
    return f'{{"provenance": {text(_PROVENANCE)},\n"document": {{\n{others},\n"paths": {{\n{paths}\n}}}}}}\n'


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        RECORDED.write_text(_as_lines(asyncio.run(served_document(Path(directory)))))
