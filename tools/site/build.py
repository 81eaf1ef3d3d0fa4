"""Build the documentation site into ``build/site``: ``make docs``. A broken link or an unknown name fails.

The pages of ``docs/`` are meant for readers of the repository. For the site they are copied to ``build/docs``;
a link to a file outside of ``docs/`` leads to the repository if ``--repository URL`` names it, and is plain text
otherwise. The reference of the Python client exists on the site alone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOCS, BUILD = ROOT / "docs", ROOT / "build"
REFERENCE = "reference.md"
_LINK = re.compile(r"\[([^\[\]]*)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")


def with_links_of_the_site(text: str, folder: Path, repository: str | None) -> str:
    """Return a page of ``folder`` without relative links out of ``docs/``."""

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_relative_to(DOCS):
            return link[0]
        if repository is None:
            return link[1]
        return f"[{link[1]}]({repository}/blob/main/{target.relative_to(ROOT)}{link[3] or ''})"

    return _LINK.sub(replaced, text)


def navigation(index: str) -> list[str | dict[str, list[str]]]:
    """Return the pages in the order in which the tables of ``docs/README.md`` list them."""
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)#]+)\)", index, re.MULTILINE)
    pages = [page for page in listed if not page.startswith("adr/")]
    pages.insert(pages.index("python.md") + 1, REFERENCE)
    return ["README.md", *pages, {"Decisions": [page for page in listed if page.startswith("adr/")]}]


def stage(repository: str | None) -> Path:
    """Write what the site is built from; return its configuration."""
    shutil.rmtree(BUILD / "docs", ignore_errors=True)
    shutil.copytree(DOCS, BUILD / "docs")
    shutil.copy(HERE / REFERENCE, BUILD / "docs")
    for page in DOCS.rglob("*.md"):
        text = with_links_of_the_site(page.read_text(), page.parent, repository)
        (BUILD / "docs" / page.relative_to(DOCS)).write_text(text)
    pages = navigation((DOCS / "README.md").read_text())
    toml = json.dumps(pages, ensure_ascii=False).replace('": ', '" = ')
    configuration = BUILD / "zensical.toml"
    configuration.write_text((HERE / "zensical.toml").read_text().replace("nav = []", f"nav = {toml}"))
    return configuration


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build the documentation site into build/site.")
    parser.add_argument("--repository", metavar="URL", help="where links to files outside of docs/ lead")
    configuration = stage(parser.parse_args().repository)
    zensical = [str(Path(sys.executable).parent / "zensical"), "build", "--strict", "--clean"]
    done = subprocess.run(
        [*zensical, "--config-file", str(configuration)],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        check=False,
    )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
