"""The worked examples of CONTRIBUTING.md list exactly the files in which their example stands."""

from __future__ import annotations

import re

import pytest

from tests.support.code_names import tracked
from tests.support.documents import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
EXAMPLES = re.findall(r"^### (Add an? .*)\n+Example: (.*)\n\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
# What a reader must not miss; tests may use an example wherever they need it.
COMPLETE_IN = ("app/", "clients/", "deploy/", "docs/settings.md", "docs/operations.md")


def test_the_four_additions_have_an_example() -> None:
    assert [title for title, _, _ in EXAMPLES] == [
        "Add a Kafka API",
        "Add an HTTP route",
        "Add a setting",
        "Add a metric",
    ]


@pytest.mark.parametrize(("title", "names", "table"), EXAMPLES, ids=[title for title, _, _ in EXAMPLES])
def test_an_example_lists_the_files_that_have_it(title: str, names: str, table: str) -> None:
    files = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    pattern = re.compile("|".join(map(re.escape, re.findall(r"`([^`]+)`", names))), re.IGNORECASE)
    for file in files:
        assert (ROOT / file).exists(), (
            f"CONTRIBUTING.md, {title}: {file} is gone: name the file that replaced it"
        )
        assert pattern.search((ROOT / file).read_text()), (
            f"CONTRIBUTING.md, {title}: {file} does not mention {names}: correct the list or choose another example"
        )
    touched = {
        file
        for file in tracked()
        if file.startswith(COMPLETE_IN)
        and not file.endswith((".png", ".svg"))
        and pattern.search((ROOT / file).read_text(errors="replace"))
    }
    missing = touched - set(files)
    assert not missing, (
        f"CONTRIBUTING.md, {title}: {sorted(missing)} mention {names}, too: add a row for each"
    )
