"""Check that everyone can use a page, including people who cannot see it or its colours.

The rules are those of axe.
"""

from __future__ import annotations

from typing import Any, cast

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

# All of them that depend on colours; the rest of a page is the same in the dark.
_RULES_OF_COLOURS = ("color-contrast", "link-in-text-block")


def check_accessibility(page: Page) -> None:
    """Check a page in light colours by all rules, then in dark ones.

    The page is light afterwards. Raises ``AssertionError`` with what is serious.
    """
    # Otherwise colours would fade from the old ones to the new.
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert _serious_violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert _serious_violations(page, *_RULES_OF_COLOURS) == []
    page.emulate_media(color_scheme="light")


def _serious_violations(page: Page, *rules: str) -> list[tuple[str, str, Any]]:
    """Return rule, advice and elements of each violation.

    Without ``rules``, all apply.
    """
    options = {"runOnly": rules} if rules else None
    violations = cast("dict[str, Any]", Axe().run(page, options=options).response)["violations"]
    return [
        (violation["id"], violation["help"], violation["nodes"])
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]
