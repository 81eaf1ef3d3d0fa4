"""The served OpenAPI document equals the recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.openapi_document import recorded_document, served_document
from tests.support.simulated_time import simulated


def operations(document: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {
        (method, path): item[method]
        for path, item in document.pop("paths").items()
        for method in sorted(item)
    }


@simulated
async def test_the_served_document_equals_the_recorded_one(tmp_path: Path) -> None:
    served, recorded = await served_document(tmp_path), recorded_document()
    assert list(served["paths"]) == list(recorded["paths"]), "the documentation lists paths in this order"
    served_operations, recorded_operations = operations(served), operations(recorded)
    assert served_operations.keys() == recorded_operations.keys()
    for name, operation in served_operations.items():
        assert operation == recorded_operations[name], name
    assert served == recorded
