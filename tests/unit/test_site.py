"""The documentation site: what ``make docs`` makes of the pages before it builds them."""

from __future__ import annotations

import pytest

from tools.site.build import DOCS, REFERENCE, navigation, with_links_of_the_site


def test_the_site_has_each_page_once() -> None:
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    listed = [
        page
        for entry in navigation((DOCS / "README.md").read_text())
        for page in ([entry] if isinstance(entry, str) else entry["Decisions"])
    ]
    assert sorted(listed) == sorted([*pages, REFERENCE])


@pytest.mark.parametrize(
    ("link", "folder", "repository", "expected"),
    [
        ("[rows](../compose.yaml)", "", None, "rows"),
        ("[rows](../compose.yaml)", "", "https://host/x", "[rows](https://host/x/blob/main/compose.yaml)"),
        ("[a](../A.md#b)", "", "https://host/x", "[a](https://host/x/blob/main/A.md#b)"),
        ("[`a`](../../A.md#b)", "adr", None, "`a`"),
        ("[rows](../cluster.md#b)", "adr", None, "[rows](../cluster.md#b)"),
        ("[rows](cluster.md)", "", "https://host/x", "[rows](cluster.md)"),
    ],
)
def test_links_out_of_the_pages_lead_to_the_repository_or_are_plain_text(
    link: str, folder: str, repository: str | None, expected: str
) -> None:
    assert with_links_of_the_site(f"See {link}.", DOCS / folder, repository) == f"See {expected}."


def test_no_page_of_the_site_links_to_a_file_that_is_not_on_it() -> None:
    for page in DOCS.rglob("*.md"):
        text = with_links_of_the_site(page.read_text(), page.parent, None)
        depth = len(page.relative_to(DOCS).parts)
        assert f"]({'../' * depth}" not in text, page
