"""``.ci/constraints.txt``, which ``make constraints`` writes, pins what pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import cast

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = sorted(
    {
        *PROJECT["build-system"]["requires"],
        *PROJECT["project"]["dependencies"],
        *(text for extra in PROJECT["project"]["optional-dependencies"].values() for text in extra),
    }
)
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    if not line.lstrip().startswith("#")
]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("text", REQUIREMENTS)
def test_each_requirement_has_one_pin_within_its_range(text: str, python: str) -> None:
    environment = cast("dict[str, str]", default_environment())
    environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate(environment):
        return
    pins = [
        str(pin.specifier).removeprefix("==")
        for pin in CONSTRAINTS
        if canonicalize_name(pin.name) == canonicalize_name(requirement.name)
        and (pin.marker is None or pin.marker.evaluate(environment))
    ]
    assert len(pins) == 1, (
        f"run: make constraints ({requirement.name} has the pins {pins} on Python {python})"
    )
    assert requirement.specifier.contains(pins[0]), f"run: make constraints ({text} has the pin {pins[0]})"
