"""Whether everybody can use a page, also those who cannot see colours or the screen: what axe finds."""

from __future__ import annotations

from typing import Any, cast

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def check_accessibility(page: Page) -> None:
    """Check a page in light colours by all rules; in dark ones, only the contrast is another.

    The page is light afterwards. Raises ``AssertionError`` with what is serious.
    """
    # Else colours would change little by little.
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    assert _serious_violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert _serious_violations(page, "color-contrast") == []
    page.emulate_media(color_scheme="light")


def _serious_violations(page: Page, *rules: str) -> list[tuple[str, str, Any]]:
    """Return rule, advice and elements of each violation, of these rules or of all."""
    options = {"runOnly": rules} if rules else None
    violations = cast("dict[str, Any]", Axe().run(page, options=options).response)["violations"]
    return [
        (violation["id"], violation["help"], violation["nodes"])
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]
